// Captures, and the graphs that come of them.
#include <algorithm>
#include <map>
#include <utility>

#include "tests/late_cuda/runtime.hpp"

namespace late_cuda {
namespace {

/// The error of a capture that ends here; none: it is whole.
cudaError_t fault_of(const Capture& capture, const CUstream_st& stream) {
  if (capture.origin != &stream) return cudaErrorStreamCaptureUnmatched;
  if (capture.mode != cudaStreamCaptureModeRelaxed && capture.thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  if (!capture.valid) return cudaErrorStreamCaptureInvalidated;
  const std::set<const Operation*> joined = up_to(stream.captured);
  const auto is_joined = [&](const Place& node) { return joined.contains(node.get()); };
  return std::ranges::all_of(capture.nodes, is_joined) ? cudaSuccess : cudaErrorStreamCaptureUnjoined;
}

/// The nodes of a graph become operations, between all that the stream was given and what it will be.
void launch(Runtime& runtime, CUgraphExec_st& graph, CUstream_st& stream) {
  Places before = stream.last;
  before.insert(before.end(), graph.previous.begin(), graph.previous.end());
  const Place begin = runtime.work().add({nullptr, "a graph begins", stream.number, std::move(before)});
  std::map<const Operation*, Place> made;
  Places all{begin};
  for (const Place& node : graph.nodes) {
    Operation operation{nullptr, node->what, node->stream, {begin}};
    if (node->run) operation.run = [node] { return node->run(); };
    for (const Place& earlier : node->after) operation.after.push_back(made.at(earlier.get()));
    all.push_back(runtime.work().add(std::move(operation)));
    made.emplace(node.get(), all.back());
  }
  graph.previous = {runtime.work().add({nullptr, "a graph ends", stream.number, std::move(all)})};
  stream.last = graph.previous;
}

}  // namespace
}  // namespace late_cuda

using late_cuda::Lock;
using late_cuda::Runtime;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  Runtime& runtime = Runtime::get();
  return runtime.call([&](Lock&) {
    if (stream == nullptr) return cudaErrorStreamCaptureUnsupported;
    if (!runtime.streams().has(stream)) return cudaErrorInvalidResourceHandle;
    if (stream->capture) return cudaErrorIllegalState;
    stream->capture =
        std::make_shared<late_cuda::Capture>(late_cuda::Capture{stream, mode, std::this_thread::get_id()});
    stream->captured.clear();
    runtime.begin_capture(stream->capture);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  Runtime& runtime = Runtime::get();
  return runtime.call([&](Lock&) {
    *graph = nullptr;
    if (!runtime.streams().has(stream)) return cudaErrorInvalidResourceHandle;
    if (!stream->capture) return cudaErrorIllegalState;
    const std::shared_ptr<late_cuda::Capture> capture = stream->capture;
    const cudaError_t code = late_cuda::fault_of(*capture, *stream);
    runtime.end_capture(*capture);
    // Events remember the capture: what they hold must end with the graph.
    const late_cuda::Places nodes = std::exchange(capture->nodes, {});
    if (code == cudaSuccess) *graph = runtime.graphs().make({nodes});
    return code;
  });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long flags) {
  Runtime& runtime = Runtime::get();
  return runtime.call([&](Lock&) {
    if (!runtime.graphs().has(graph)) return cudaErrorInvalidValue;
    if ((flags & ~static_cast<unsigned long long>(cudaGraphInstantiateFlagUseNodePriority)) != 0)
      return cudaErrorNotSupported;
    *executable = runtime.executables().make({.nodes = graph->nodes});
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  Runtime& runtime = Runtime::get();
  return runtime.call(
      [&](Lock&) { return runtime.graphs().drop(graph) ? cudaSuccess : cudaErrorInvalidValue; });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  Runtime& runtime = Runtime::get();
  return runtime.call(
      [&](Lock&) { return runtime.executables().drop(executable) ? cudaSuccess : cudaErrorInvalidValue; });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  Runtime& runtime = Runtime::get();
  return runtime.call([&](Lock&) {
    CUstream_st* const found = runtime.stream(stream);
    if (!found || !runtime.executables().has(executable)) return cudaErrorInvalidResourceHandle;
    if (found->capture) {  // a graph within a graph: nothing here asks for it
      found->capture->valid = false;
      return cudaErrorStreamCaptureUnsupported;
    }
    late_cuda::launch(runtime, *executable, *found);
    return cudaSuccess;
  });
}
