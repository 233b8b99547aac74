// Streams, events and what makes the host wait.
#include <algorithm>

#include "tests/late_cuda/memory.hpp"
#include "tests/late_cuda/runtime.hpp"

namespace late_cuda {
namespace {

constexpr int least_priority = 0, greatest_priority = -5;

/// What the host may neither ask for nor wait for: it ends the capture, too.
cudaError_t refused(Capture& capture) {
  capture.valid = false;
  return cudaErrorStreamCaptureUnsupported;
}

/// An event that was recorded outside of captures, for the host. `ask` is called once it may be waited for.
template <class F>
cudaError_t on_event(cudaEvent_t event, const F& ask) {
  Runtime& runtime = Runtime::get();
  return runtime.call([&](Lock& lock) {
    if (!runtime.events().has(event)) return cudaErrorInvalidResourceHandle;
    if (event->capture) {
      event->capture->valid = false;
      return cudaErrorCapturedEvent;
    }
    if (const cudaError_t code = runtime.allowed_while_capturing(); code != cudaSuccess) return code;
    return ask(lock);
  });
}

cudaError_t wait_in_capture(CUstream_st& stream, const CUevent_st& event) {
  if (!event.capture) {  // on work that no graph holds
    stream.capture->valid = false;
    return cudaErrorStreamCaptureIsolation;
  }
  if (!event.capture->active) return cudaErrorCapturedEvent;
  if (stream.capture && stream.capture != event.capture) {
    stream.capture->valid = event.capture->valid = false;
    return cudaErrorStreamCaptureMerge;
  }
  if (!stream.capture) {
    stream.capture = event.capture;
    stream.captured.clear();
  }
  if (!stream.capture->valid) return cudaErrorStreamCaptureInvalidated;
  stream.captured.insert(stream.captured.end(), event.at.begin(), event.at.end());
  return cudaSuccess;
}

}  // namespace
}  // namespace late_cuda

using late_cuda::Lock;
using late_cuda::Runtime;

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = late_cuda::least_priority;
  *greatest = late_cuda::greatest_priority;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  Runtime& runtime = Runtime::get();
  return runtime.call([&](Lock&) {
    // Of others the legacy stream would have to know.
    if (flags != cudaStreamNonBlocking) return cudaErrorNotSupported;
    const int kept = std::clamp(priority, late_cuda::greatest_priority, late_cuda::least_priority);
    *stream = runtime.streams().make({.number = runtime.next_stream(), .priority = kept});
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  Runtime& runtime = Runtime::get();
  return runtime.call([&](Lock&) {
    const CUstream_st* const found = runtime.stream(stream);
    if (!found) return cudaErrorInvalidResourceHandle;
    *priority = found->priority;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Runtime& runtime = Runtime::get();
  return runtime.call([&](Lock&) {
    if (!runtime.streams().has(stream)) return cudaErrorInvalidResourceHandle;
    if (stream->capture) stream->capture->valid = false;
    runtime.streams().drop(stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Runtime& runtime = Runtime::get();
  return runtime.call([&](Lock& lock) {
    CUstream_st* const found = runtime.stream(stream);
    if (!found) return cudaErrorInvalidResourceHandle;
    if (found->capture) return late_cuda::refused(*found->capture);
    if (const cudaError_t code = runtime.allowed_while_capturing(); code != cudaSuccess) return code;
    runtime.work().run_until(late_cuda::Places(found->last), lock);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  Runtime& runtime = Runtime::get();
  return runtime.call([&](Lock& lock) {
    if (const cudaError_t code = runtime.allowed_while_capturing(); code != cudaSuccess) return code;
    runtime.work().run_all(lock);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Runtime& runtime = Runtime::get();
  return runtime.call([&](Lock&) {
    CUstream_st* const found = runtime.stream(stream);
    if (!found || !runtime.events().has(event)) return cudaErrorInvalidResourceHandle;
    if (!event->recorded) return cudaSuccess;
    if (found->capture || event->capture) return late_cuda::wait_in_capture(*found, *event);
    found->last.insert(found->last.end(), event->at.begin(), event->at.end());
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  Runtime& runtime = Runtime::get();
  return runtime.call([&](Lock&) {
    *event = runtime.events().make({.timed = (flags & cudaEventDisableTiming) == 0});
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Runtime& runtime = Runtime::get();
  return runtime.call(
      [&](Lock&) { return runtime.events().drop(event) ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Runtime& runtime = Runtime::get();
  return runtime.call([&](Lock&) {
    CUstream_st* const found = runtime.stream(stream);
    if (!found || !runtime.events().has(event)) return cudaErrorInvalidResourceHandle;
    if (found->capture && !found->capture->valid) return cudaErrorStreamCaptureInvalidated;
    event->recorded = true;
    event->capture = found->capture;
    if (found->capture) {
      event->at = found->captured;
      return cudaSuccess;
    }
    const cudaError_t code = runtime.append(*found, nullptr, "an event");
    event->at = found->last;
    return code;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Runtime& runtime = Runtime::get();
  return late_cuda::on_event(event, [&](Lock&) {
    // Who asks again and again gets an answer in the end.
    late_cuda::Work& work = runtime.work();
    if (!late_cuda::all_done(event->at) && work.draw() % 2 == 0) work.poll_some();
    return late_cuda::all_done(event->at) ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Runtime& runtime = Runtime::get();
  return late_cuda::on_event(event, [&](Lock& lock) {
    runtime.work().run_until(late_cuda::Places(event->at), lock);
    return cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  Runtime& runtime = Runtime::get();
  return runtime.call([&](Lock&) {
    for (const cudaEvent_t event : {begin, end}) {
      if (!runtime.events().has(event) || !event->timed || !event->recorded || event->capture)
        return cudaErrorInvalidResourceHandle;
      if (!late_cuda::all_done(event->at)) return cudaErrorNotReady;
    }
    *milliseconds = static_cast<float>(1e3 * (end->at.front()->seconds - begin->at.front()->seconds));
    return cudaSuccess;
  });
}

/// On whatever thread runs operations, with the device's memory closed. What it calls of CUDA is refused.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  Runtime& runtime = Runtime::get();
  return runtime.call([&](Lock&) {
    CUstream_st* const found = runtime.stream(stream);
    if (!found) return cudaErrorInvalidResourceHandle;
    const auto call = [function, data] {
      const int opened = late_cuda::device_memory().shut();
      Runtime::in_host_function() = true;
      function(data);
      Runtime::in_host_function() = false;
      late_cuda::device_memory().reopen(opened);
      return true;
    };
    return runtime.append(*found, call, "a function of the host");
  });
}
