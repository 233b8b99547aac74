#pragma once
// What the library's functions share.

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <thread>

#include "tests/late_cuda/late_cuda.hpp"
#include "tests/late_cuda/work.hpp"

namespace late_cuda {

struct Capture {
  cudaStream_t origin;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  bool active = true, valid = true;
  Places nodes{};  ///< patterns of operations, in the order in which they were given
};

}  // namespace late_cuda

// CUDA leaves open what its handles point to.

struct CUstream_st {
  int number = 0, priority = 0;
  late_cuda::Places last{};                       ///< what is given next runs after these
  std::shared_ptr<late_cuda::Capture> capture{};  ///< null: none
  late_cuda::Places captured{};                   ///< within it, as `last`
};

struct CUevent_st {
  bool timed = false, recorded = false;
  late_cuda::Places at{};                         ///< all that it stands for
  std::shared_ptr<late_cuda::Capture> capture{};  ///< it was last recorded in; null: in none
};

struct CUgraph_st {
  late_cuda::Places nodes{};
};

struct CUgraphExec_st {
  late_cuda::Places nodes{};
  late_cuda::Places previous{};  ///< the end of the last launch: launches of one graph follow each other
};

namespace late_cuda {

/// Objects that callers know by handles. A handle that is none is found out.
template <class T>
class Handles {
 public:
  T* make(T object) {
    auto owned = std::make_unique<T>(std::move(object));
    T* const handle = owned.get();
    owned_.emplace(handle, std::move(owned));
    return handle;
  }
  bool has(const T* handle) const { return owned_.contains(handle); }
  bool drop(const T* handle) { return owned_.erase(handle) > 0; }
  int count() const { return static_cast<int>(owned_.size()); }
  template <class F>
  void each(const F& f) {
    for (auto& [handle, object] : owned_) f(*object);
  }

 private:
  std::map<const T*, std::unique_ptr<T>> owned_;
};

class Runtime {
 public:
  static Runtime& get();
  Runtime() = default;
  ~Runtime() { stop_idle_thread(); }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  void restart(const Options& options);

  /// One function of CUDA's: f(Lock&) gives its code, which becomes the thread's last error.
  template <class F>
  cudaError_t call(const F& f) {
    if (in_host_function()) return last_error() = cudaErrorNotPermitted;
    Lock lock(mutex_);
    last_call_ = Clock::now();
    cudaError_t code = cudaErrorLaunchFailure;
    try {
      if (!failed_) code = f(lock);
    } catch (const std::exception& e) {
      code = fail(e.what());
    }
    if (failed_) code = cudaErrorLaunchFailure;
    if (code != cudaSuccess) last_error() = code;
    return code;
  }
  /// Of this thread.
  static cudaError_t& last_error();
  /// Whether this thread runs a host function that a stream was given: it may call nothing.
  static bool& in_host_function();

  Work& work() { return *work_; }
  int driver() const { return driver_; }
  bool registers() const { return registers_; }
  /// That of the handle, and for null the legacy stream; null where it is no stream.
  CUstream_st* stream(cudaStream_t handle);
  Handles<CUstream_st>& streams() { return streams_; }
  Handles<CUevent_st>& events() { return events_; }
  Handles<CUgraph_st>& graphs() { return graphs_; }
  Handles<CUgraphExec_st>& executables() { return executables_; }
  const std::string& module_loading() const { return module_loading_; }
  int connections() const { return connections_.empty() ? 8 : std::stoi(connections_); }
  int next_stream() { return ++stream_count_; }

  /// Gives the stream an operation, or its capture a node.
  cudaError_t append(CUstream_st& stream, std::function<bool()> run, const char* what);
  /// Calls that may wait, allocate or ask: a capture of this thread, or one that minds all threads, ends by
  /// them.
  cudaError_t allowed_while_capturing();
  void begin_capture(std::shared_ptr<Capture> capture) { captures_.push_back(std::move(capture)); }
  void end_capture(const Capture& capture);

 private:
  using Clock = std::chrono::steady_clock;
  cudaError_t fail(const char* what);
  void stop_idle_thread();
  void run_when_idle();

  static std::string environment(const char* name);

  const std::string module_loading_ = environment("CUDA_MODULE_LOADING");
  const std::string connections_ = environment("CUDA_DEVICE_MAX_CONNECTIONS");
  std::mutex mutex_;
  std::unique_ptr<Work> work_ = std::make_unique<Work>(0);
  int shared_ = 0;               ///< Options::connections
  int driver_ = CUDART_VERSION;  ///< Options::driver
  bool registers_ = true;        ///< Options::registers
  std::map<int, Place> last_;    ///< what each of them was given last
  Handles<CUstream_st> streams_;
  Handles<CUevent_st> events_;
  Handles<CUgraph_st> graphs_;
  Handles<CUgraphExec_st> executables_;
  CUstream_st legacy_;
  int stream_count_ = 0;
  std::vector<std::shared_ptr<Capture>> captures_;  ///< under way
  bool failed_ = false;

  Clock::time_point last_call_;
  std::thread idle_;
  bool stopping_ = false;
  std::condition_variable stop_;
};

}  // namespace late_cuda
