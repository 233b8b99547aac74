#pragma once
// Communicators for memory that MPI cannot reach. Contributions are copied to staging memory of the host, an
// MpiCommunicator works on them there, and results are copied back. Sums are therefore formed by the host in
// rank order, bit for bit as on CPU ranks.
//
// The host drives them: start() waits for the copy out, and a collective is complete only when its copy in
// is, so work submitted later to any queue sees the result.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/comm/mpi_comm.hpp"
#include "runtime/device/device.hpp"

namespace ztrain::runtime {

/// Pinned host memory through which the collectives of one queue are copied. A queue has one in flight at a
/// time, so the memory is as large as the largest needs.
class Staging {
 public:
  Staging(Device& device, Queue queue);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Notes that a collective will need this much. Nothing is allocated before one is started.
  void reserve(std::int64_t bytes);
  /// Bytes that were reserved.
  std::int64_t bytes() const { return reserved_; }

  /// Returns the first byte for the collective that starts now, until release(). Throws Error if another has
  /// it, or if the memory cannot be had. Allocates if more was reserved since the last time.
  std::byte* acquire();
  void release() { in_use_ = false; }
  /// Changes whenever acquire() returns other memory than before.
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

/// Makes a communicator. Sums of reduce_scatter are formed in staging memory: its workspace is not touched.
std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<MpiCommunicator> inner,
                                                       std::shared_ptr<Staging> staging);

}  // namespace ztrain::runtime
