#pragma once
// The device's queues as kernels see them: an execution-space instance for each, shared by all Programs.

#include <array>
#include <optional>

#include "base/host_threads.hpp"
#include "kernels/launch/exec.hpp"
#include "program/ir/program.hpp"
#include "runtime/device/device.hpp"

namespace ztrain::engine {

static_assert(program::stream_count == runtime::queue_count,
              "a stream of a Program is a queue of the device");

inline runtime::Queue queue_of(program::Stream stream) {
  return static_cast<runtime::Queue>(stream);
}

class Queues {
 public:
  /// The device must outlive it. host_threads: that share what the host computes.
  explicit Queues(runtime::Device& device, int host_threads = 1)
      : device_(device), thread_count_(host_threads) {}
  Queues(const Queues&) = delete;
  Queues& operator=(const Queues&) = delete;

  runtime::Device& device() const { return device_; }
  /// Made when it is first asked for. Throws Error when the kernel backend is not initialised.
  kernels::Exec& exec(runtime::Queue queue) {
    kernels::ExecHandle& exec = execs_[static_cast<std::size_t>(queue)];
    if (!exec) exec = kernels::make_exec(device_.native_stream(queue));
    return *exec;
  }
  /// Made when they are first asked for.
  HostThreads& host_threads() {
    if (!threads_) threads_.emplace(thread_count_);
    return *threads_;
  }

 private:
  runtime::Device& device_;
  int thread_count_;
  std::optional<HostThreads> threads_;
  std::array<kernels::ExecHandle, runtime::queue_count> execs_;
};

}  // namespace ztrain::engine
