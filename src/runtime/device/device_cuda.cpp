#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <vector>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "runtime/device/choose_gpu.hpp"
#include "runtime/device/cuda_check.hpp"
#include "runtime/device/cuda_memory.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/gpu_address.hpp"

namespace ztrain::runtime {
namespace {

int visible_gpus() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const NoGpu why = code == cudaErrorInsufficientDriver                ? NoGpu::driver
                    : code == cudaErrorNoDevice || code == cudaSuccess ? NoGpu::device
                                                                       : NoGpu::other;
  throw Error(no_gpu_message(why, code == cudaSuccess ? "0 devices" : cudaGetErrorString(code),
                             visible ? std::optional<std::string>(visible) : std::nullopt));
}

cudaDeviceProp properties_of(int gpu) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, gpu), "cudaGetDeviceProperties");
  return properties;
}

/// Returns the UUID, which differs between instances of one GPU that is cut into several (MIG), as bus
/// addresses do not.
std::string uuid_of(const cudaDeviceProp& properties) {
  std::string text;
  for (const char byte : properties.uuid.bytes)
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

/// Makes the GPU current for this thread and all libraries.
cudaDeviceProp take_gpu(int gpu) {
  check_cuda(cudaSetDevice(gpu), "cudaSetDevice");
  // Kokkos would otherwise choose by its own rules.
  setenv("KOKKOS_DEVICE_ID", std::to_string(gpu).c_str(), /*overwrite=*/1);
  return properties_of(gpu);
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const cudaDeviceProp& properties)
      : name_(properties.name),
        identity_(uuid_of(properties)),
        multiprocessors_(properties.multiProcessorCount),
        memory_(name_) {
    check_cuda(cudaDeviceGetStreamPriorityRange(&least_priority_, &greatest_priority_),
               "cudaDeviceGetStreamPriorityRange");
  }
  /// Does not wait, and ignores errors, because it also runs while an error unwinds.
  ~CudaDevice() override {
    for (const cudaGraphExec_t graph : graphs_)
      if (graph) cudaGraphExecDestroy(graph);
    for (const EventState& event : events_) cudaEventDestroy(event.event);
    for (const cudaStream_t stream : streams_)
      if (stream) cudaStreamDestroy(stream);
  }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const std::string& name() const override { return name_; }
  const std::string& identity() const override { return identity_; }
  int multiprocessors() const override { return multiprocessors_; }
  bool asynchronous() const override { return true; }
  memory::Provider& memory() override { return memory_; }
  memory::Provider& staging() override { return staging_; }
  void* native_stream(Queue queue) const override { return stream(queue); }

  void submit(Queue, const std::function<void()>& work) override {
    work();
    check_cuda(cudaGetLastError(), "a kernel launch");
  }
  void run_on_host(Queue queue, const std::function<void()>& work) override {
    const auto call = [](void* given) { (*static_cast<const std::function<void()>*>(given))(); };
    check_cuda(cudaLaunchHostFunc(stream(queue), call, const_cast<std::function<void()>*>(&work)),
               "cudaLaunchHostFunc");
  }
  Event make_event(bool timed) override {
    EventState made;
    check_cuda(cudaEventCreateWithFlags(&made.event, timed ? cudaEventDefault : cudaEventDisableTiming),
               "cudaEventCreateWithFlags");
    events_.push_back(made);
    return static_cast<Event>(events_.size() - 1);
  }
  void record(Event event, Queue queue) override {
    EventState& state = events_[at(event)];
    check_cuda(cudaEventRecord(state.event, stream(queue)), "cudaEventRecord");
    state.recorded = true;
    state.captured = captured(queue);
  }
  void wait(Queue queue, Event event) override {
    const EventState& state = events_[at(event)];
    if (!state.recorded) return;
    check_cuda(cudaStreamWaitEvent(stream(queue), state.event, 0), "cudaStreamWaitEvent");
    if (state.captured) joined_[at(queue)] = true;
  }
  void copy_in(Queue queue, void* to, const void* host, std::int64_t bytes) override {
    check_cuda(
        cudaMemcpyAsync(to, host, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, stream(queue)),
        "cudaMemcpyAsync to the device");
  }
  void copy_out(Queue queue, void* host, const void* from, std::int64_t bytes) override {
    check_cuda(
        cudaMemcpyAsync(host, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, stream(queue)),
        "cudaMemcpyAsync to the host");
  }

  bool done(Event event) override {
    const EventState& state = events_[at(event)];
    if (!state.recorded) return true;
    const cudaError_t code = cudaEventQuery(state.event);
    if (code == cudaErrorNotReady) {
      cudaGetLastError();  // otherwise the next launch would report the error
      return false;
    }
    check_cuda(code, "cudaEventQuery");
    return true;
  }
  void synchronize(Event event) override {
    const EventState& state = events_[at(event)];
    if (state.recorded) check_cuda(cudaEventSynchronize(state.event), "cudaEventSynchronize");
  }
  void forget_errors() override { cudaGetLastError(); }
  void finish() override {
    for (const cudaStream_t stream : streams_)
      if (stream) check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  std::optional<double> seconds(Event from, Event to) override {
    const EventState &begin = events_[at(from)], &end = events_[at(to)];
    if (!begin.recorded || !end.recorded || begin.captured || end.captured) return std::nullopt;
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin.event, end.event), "cudaEventElapsedTime");
    return 1e-3 * static_cast<double>(milliseconds);
  }

  bool captures() const override { return true; }
  void begin_capture(Queue queue) override {
    check_cuda(cudaStreamBeginCapture(stream(queue), cudaStreamCaptureModeThreadLocal),
               "cudaStreamBeginCapture");
    capturing_ = true;
    joined_.fill(false);
    joined_[at(queue)] = true;
  }
  Graph end_capture(Queue queue) override {
    capturing_ = false;
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream(queue), &graph), "cudaStreamEndCapture");
    cudaGraphExec_t executable = nullptr;
    const cudaError_t code =
        cudaGraphInstantiateWithFlags(&executable, graph, cudaGraphInstantiateFlagUseNodePriority);
    cudaGraphDestroy(graph);
    check_cuda(code, "cudaGraphInstantiateWithFlags");
    graphs_.push_back(executable);
    return static_cast<Graph>(graphs_.size() - 1);
  }
  void launch(Graph graph, Queue queue) override {
    check_cuda(cudaGraphLaunch(graphs_[at(graph)], stream(queue)), "cudaGraphLaunch");
  }
  void destroy(Graph graph) noexcept override {
    cudaGraphExecDestroy(graphs_[at(graph)]);
    graphs_[at(graph)] = nullptr;
  }

 private:
  struct EventState {
    cudaEvent_t event = nullptr;
    bool recorded = false;
    bool captured = false;  ///< whether it was last recorded in a capture
  };
  /// Makes a stream when it is first asked for: an unused one would take a connection from others.
  cudaStream_t stream(Queue queue) const {
    cudaStream_t& made = streams_[at(queue)];
    // Communication has the higher priority: its few blocks would otherwise wait until a product has no more
    // to launch.
    if (!made)
      check_cuda(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking,
                                              queue == compute_queue ? least_priority_ : greatest_priority_),
                 "cudaStreamCreateWithPriority");
    return made;
  }
  bool captured(Queue queue) const { return capturing_ && joined_[at(queue)]; }

  std::string name_, identity_;
  int multiprocessors_;
  CudaMemory memory_;
  PinnedMemory staging_;
  int least_priority_ = 0, greatest_priority_ = 0;
  mutable std::array<cudaStream_t, queue_count> streams_{};
  std::vector<EventState> events_;
  std::vector<cudaGraphExec_t> graphs_;
  bool capturing_ = false;
  std::array<bool, queue_count> joined_{};  ///< queues that have joined the capture under way
};

}  // namespace

std::unique_ptr<Device> make_device(int local_rank) {
  return std::make_unique<CudaDevice>(take_gpu(choose_gpu(local_rank, visible_gpus())));
}

bool built_for_gpus() {
  return true;
}

std::string gpu_address() {
  int gpu = 0;
  check_cuda(cudaGetDevice(&gpu), "cudaGetDevice");
  std::array<char, 32> address{};
  if (cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), gpu) != cudaSuccess) {
    cudaGetLastError();  // The next check would find the error.
    return "";
  }
  std::string text = address.data();
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace ztrain::runtime
