#pragma once
// A CUDA runtime for tests, on the host: liblate_cudart.so has the functions of libcudart that the product
// calls. Device memory is the host's, closed to it; what is given to streams runs as late as CUDA allows, and
// in an order drawn from a seed among those that streams and events allow. So a missing event, a result read
// too early or a copy's source changed too soon gives other numbers, and a stray access of the host a
// segmentation fault.
//
// When work runs: while a thread waits (cudaStreamSynchronize, cudaEventSynchronize, cudaDeviceSynchronize,
// copies that are synchronous, cudaFree), on that thread: what it waits for needs, or more, as the seed has
// it. cudaEventQuery sometimes runs a few operations. Nothing else does, unless Options::runs_when_idle:
// ranks that wait for each other in MPI need streams that go on by themselves.
//
// Operations run one at a time.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace late_cuda {

struct Options {
  std::uint64_t seed = 0;
  /// Once the host has called nothing for a while, a thread of the library runs operations.
  bool runs_when_idle = false;
  /// Streams share connections: what is given to one of them runs in the order in which the host gave it,
  /// whatever its stream. Graphs are left out.
  int connections = 0;          ///< 0: each stream has its own
  int driver = CUDART_VERSION;  ///< version that cudaDriverGetVersion reports
  bool registers = true;        ///< Whether the GPU reaches registered memory by the host's addresses.
};

/// Forgets errors, what is queued and captures under way. Memory, streams and events stay.
void restart(const Options& options);

/// CUDA_MODULE_LOADING as it was when the library was first called; "" where it was not set.
const std::string& module_loading();
/// CUDA_DEVICE_MAX_CONNECTIONS, likewise; 8 where it was not set.
int connections();

/// Appends an operation to the stream, as a kernel's launch would. It is polled once all before it is done,
/// until it returns true: at any rate the next call begins anew, for it may run again. Within a capture it
/// becomes a node of the graph, which runs at each launch. It runs on any thread that waits, which then holds
/// the library's lock: it calls no function of CUDA, of this header (but Open) or of MPI, and returns false
/// rather than wait. An exception is the device's failure: every call says cudaErrorLaunchFailure from then
/// on. what: for messages, and lives for ever.
void enqueue(cudaStream_t stream, std::function<bool()> work, const char* what);

/// Whether what is given to the stream is captured.
bool capturing(cudaStream_t stream);

/// Whether all of [data, data + bytes) is of one allocation of the device.
bool is_device_memory(const void* data, std::size_t bytes);

/// What exists of what callers make and must destroy.
struct Objects {
  int streams, events, graphs, executables;
  bool operator==(const Objects&) const = default;
};
Objects objects();

/// Device memory is open to the process while one lives: operations make one around what they read and write.
class Open {
 public:
  Open();
  ~Open();
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;
};

}  // namespace late_cuda
