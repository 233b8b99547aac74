#pragma once
// The pinned host memory that collectives of one queue are copied through. A queue has one in flight at a
// time, so it is as large as the largest needs.

#include <cstddef>
#include <cstdint>

#include "runtime/device/device.hpp"
#include "runtime/device/queue_end.hpp"

namespace ztrain::runtime {

class Staging {
 public:
  Staging(Device& device, Queue queue);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// A collective will need this much. Nothing is allocated before one is started.
  void reserve(std::int64_t bytes);
  /// What was reserved.
  std::int64_t bytes() const { return reserved_; }

  /// For the collective that starts now, until release(): its first byte. Throws Error while another has it,
  /// or when the memory cannot be had. Allocates when more was reserved since the last time.
  std::byte* acquire();
  void release() { in_use_ = false; }
  /// Changes whenever acquire() gives other memory than before.
  int generation() const { return generation_; }

  Device& device() { return device_; }
  Queue queue() const { return queue_; }
  QueueEnd& end() { return end_; }

 private:
  Device& device_;
  Queue queue_;
  QueueEnd end_;
  std::byte* data_ = nullptr;
  std::int64_t reserved_ = 0, allocated_ = 0;
  int generation_ = 0;
  bool in_use_ = false;
};

}  // namespace ztrain::runtime
