#include "tests/late_cuda/runtime.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/late_cuda/memory.hpp"

namespace late_cuda {
namespace {

/// The host is idle once it has called nothing for so long.
constexpr std::chrono::milliseconds patience{10};

}  // namespace

Runtime& Runtime::get() {
  device_memory();  // made first, so that it outlives the thread of the runtime
  static Runtime runtime;
  return runtime;
}

std::string Runtime::environment(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

cudaError_t& Runtime::last_error() {
  thread_local cudaError_t code = cudaSuccess;
  return code;
}

bool& Runtime::in_host_function() {
  thread_local bool in = false;
  return in;
}

void Runtime::restart(const Options& options) {
  stop_idle_thread();
  const Lock lock(mutex_);
  work_->drop();
  work_ = std::make_unique<Work>(options.seed);
  shared_ = options.connections;
  driver_ = options.driver;
  registers_ = options.registers;
  last_.clear();
  while (!captures_.empty()) end_capture(*captures_.back());
  failed_ = false;
  last_error() = cudaSuccess;
  stopping_ = false;
  last_call_ = Clock::now();
  if (options.runs_when_idle) idle_ = std::thread([this] { run_when_idle(); });
}

void Runtime::stop_idle_thread() {
  if (!idle_.joinable()) return;
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  idle_.join();
}

void Runtime::run_when_idle() {
  Lock lock(mutex_);
  while (!stopping_) {
    const Clock::time_point due = last_call_ + patience;
    bool found = false;
    if (Clock::now() >= due && !failed_) {
      try {
        found = work_->poll_some();
      } catch (const std::exception& e) {
        fail(e.what());
      }
    }
    // The lock goes to others in between, also where one of them waits for another process.
    stop_.wait_for(lock, found ? std::chrono::microseconds(20) : std::chrono::microseconds(patience) / 4);
  }
}

cudaError_t Runtime::fail(const char* what) {
  std::fprintf(stderr, "late CUDA: an operation failed: %s\n", what);
  failed_ = true;
  work_->drop();
  return cudaErrorLaunchFailure;
}

CUstream_st* Runtime::stream(cudaStream_t handle) {
  if (handle == nullptr) return &legacy_;
  return streams_.has(handle) ? handle : nullptr;
}

cudaError_t Runtime::append(CUstream_st& stream, std::function<bool()> run, const char* what) {
  if (!stream.capture) {
    Places after = stream.last;
    Place* const shared = shared_ > 0 ? &last_[stream.number % shared_] : nullptr;
    if (shared && *shared) after.push_back(*shared);
    stream.last = {work_->add({std::move(run), what, stream.number, std::move(after)})};
    if (shared) *shared = stream.last.front();
    return cudaSuccess;
  }
  if (!stream.capture->valid) return cudaErrorStreamCaptureInvalidated;
  Operation node{std::move(run), what, stream.number, stream.captured};
  stream.captured = {std::make_shared<Operation>(std::move(node))};
  stream.capture->nodes.push_back(stream.captured.front());
  return cudaSuccess;
}

cudaError_t Runtime::allowed_while_capturing() {
  cudaError_t code = cudaSuccess;
  for (const auto& capture : captures_) {
    const bool minds =
        capture->mode == cudaStreamCaptureModeGlobal ||
        (capture->mode == cudaStreamCaptureModeThreadLocal && capture->thread == std::this_thread::get_id());
    if (!minds) continue;
    capture->valid = false;
    code = cudaErrorStreamCaptureUnsupported;
  }
  return code;
}

void Runtime::end_capture(const Capture& ended) {
  streams_.each([&](CUstream_st& stream) {
    if (stream.capture.get() != &ended) return;
    stream.capture.reset();
    stream.captured.clear();
  });
  events_.each([&](CUevent_st& event) {
    if (event.capture.get() == &ended) event.at.clear();  // nobody may wait for it any more
  });
  std::erase_if(captures_, [&](const std::shared_ptr<Capture>& capture) {
    if (capture.get() != &ended) return false;
    capture->active = false;
    return true;
  });
}

void restart(const Options& options) {
  Runtime::get().restart(options);
}

const std::string& module_loading() {
  return Runtime::get().module_loading();
}

int connections() {
  return Runtime::get().connections();
}

void enqueue(cudaStream_t stream, std::function<bool()> work, const char* what) {
  Runtime& runtime = Runtime::get();
  runtime.call([&](Lock&) {
    CUstream_st* const found = runtime.stream(stream);
    return found ? runtime.append(*found, std::move(work), what) : cudaErrorInvalidResourceHandle;
  });
}

Objects objects() {
  Runtime& runtime = Runtime::get();
  Objects counts{};
  runtime.call([&](Lock&) {
    counts = {runtime.streams().count(), runtime.events().count(), runtime.graphs().count(),
              runtime.executables().count()};
    return cudaSuccess;
  });
  return counts;
}

bool capturing(cudaStream_t stream) {
  bool captured = false;
  Runtime& runtime = Runtime::get();
  runtime.call([&](Lock&) {
    const CUstream_st* const found = runtime.stream(stream);
    captured = found && found->capture;
    return cudaSuccess;
  });
  return captured;
}

}  // namespace late_cuda
