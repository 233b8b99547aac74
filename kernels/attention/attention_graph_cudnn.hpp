#pragma once
// Attention as a graph of cuDNN's: which tensors it has, where they lie, and which attributes. Needs neither
// a GPU nor a handle, so that graphs can be checked on any machine that has the library. The headers of
// cudnn-frontend take most of a minute to compile, so one source alone includes them.

#include <cudnn.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/attention/attention_cudnn.hpp"

namespace cudnn_frontend::graph {
class Graph;
}

namespace ztrain::kernels {

using CudnnGraph = std::shared_ptr<cudnn_frontend::graph::Graph>;

/// One launch of the request: work.at_once entries, the query heads of work.kv_heads. Pointers of all tensors
/// but lse are those of [tokens, heads * head_dim] from the launch's first token and head on, with rows as
/// far apart as shape (of k, v, dk and dv: work.kv_row) says; forward writes lse as [tokens, heads], backward
/// reads it so (`documents`), else packed [entry, head, length]. sm: of the GPU that it is for, 90 for
/// compute capability 9.0; 0: of the current one.
CudnnGraph describe_attention(const AttentionRequest& request, int sm = 0);

/// Which keys a query sees: itself and those before it of its entry, shape.window of them at most. A mask
/// that is given has the window in it. Attributes: cuDNN's, of either direction.
template <class Attributes>
void set_band(Attributes& attributes, const AttentionRequest& r) {
  attributes.set_diagonal_band_right_bound(0);
  if (r.shape.window > 0 && r.shape.window < r.work.length && r.work.way != AttentionWay::masked)
    attributes.set_diagonal_band_left_bound(static_cast<int>(r.shape.window));
}

/// What a plan is for: the GPU of a handle; or without a handle one that need not be there, told by its
/// properties, the JSON text that cuDNN takes from 9.8 on.
struct PlanDevice {
  cudnnHandle_t handle = nullptr;
  std::string properties{};
};

// The next functions return what went wrong, in the library's words; empty when nothing did.

/// cuDNN's own rules, for the GPU that the graph was described for. Compiles nothing.
std::string check_graph(cudnn_frontend::graph::Graph& graph);

/// As cudnnGetVersion says it: the first that promises that ragged entries may have no tokens, as those
/// behind the last document have none. With older ones `documents` is not taken.
inline constexpr std::size_t cudnn_with_empty_documents = 92500;

/// What the request would rely on and this version of cuDNN (cudnnGetVersion) does not promise.
std::string unpromised(const AttentionRequest& request, std::size_t cudnn);

/// Lists plans for the device, and looks for one that supports the graph. Compiles nothing.
std::string choose_plans(cudnn_frontend::graph::Graph& graph, const PlanDevice& device,
                         const AttentionRequest& request);

/// After choose_plans: compiles the first that needs at most the library's part of request.work's workspace.
std::string compile_plan(cudnn_frontend::graph::Graph& graph, const AttentionRequest& request);

/// Enqueues the plan of a graph that was compiled. pointers: by uid.
std::string run_graph(cudnn_frontend::graph::Graph& graph, cudnnHandle_t handle,
                      std::unordered_map<std::int64_t, void*>& pointers, void* workspace);

/// Bytes that the compiled plan needs.
std::int64_t workspace_of(const cudnn_frontend::graph::Graph& graph);

/// The uids whose pointers a launch of the compiled plan asks for.
std::vector<std::int64_t> pointers_of(const cudnn_frontend::graph::Graph& graph);

/// Elements from one token to the next of a tensor of the graph. Throws Error when the graph has it not.
std::int64_t row_of(const CudnnGraph& graph, AttentionTensor tensor);

}  // namespace ztrain::kernels
