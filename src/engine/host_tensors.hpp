#pragma once
// The host's side of the tensors that it writes before a run and reads after it.

#include <cstdint>
#include <functional>
#include <vector>

#include "memory/arena.hpp"
#include "runtime/device/device.hpp"

namespace ztrain::engine {

/// A place in the device's memory.
struct DeviceRange {
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
};

/// Gives the host the tensors themselves if it reaches the device's memory, else copies in staging memory.
class HostTensors {
 public:
  /// The device must outlive it. Throws Error when there is not enough staging memory. Copies begin as zeros.
  HostTensors(runtime::Device& device, std::vector<DeviceRange> ranges);

  /// Returns the staging memory for tensors of these sizes, of a device whose memory the host cannot reach.
  static std::int64_t staging_bytes(const std::vector<std::int64_t>& bytes);

  std::size_t size() const { return ranges_.size(); }
  /// The i-th of the ranges.
  std::byte* at(std::size_t i) const;
  std::int64_t bytes(std::size_t i) const { return ranges_[i].bytes; }

  // Work of the compute queue. What is uploaded may be changed, and what is downloaded read, once the device
  // is through with it: after wait().
  void upload(std::size_t i);
  void download(std::size_t i);
  /// Until the device is through with all that compute was given; calls `meanwhile` again and again.
  void wait(const std::function<void()>& meanwhile);

 private:
  runtime::Device& device_;
  bool direct_;
  std::vector<DeviceRange> ranges_;
  std::vector<std::int64_t> offsets_;  ///< in staging_
  memory::Arena staging_;
  runtime::Event through_;
};

}  // namespace ztrain::engine
