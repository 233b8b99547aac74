#pragma once
// Attention as a graph of cuDNN's: which tensors it has, where they lie, and which attributes. Needs neither
// a GPU nor a handle, so that graphs can be checked on any machine that has the library.

#include <cudnn_frontend.h>

#include <memory>

#include "kernels/attention_cudnn.hpp"

namespace ztrain::kernels {

using CudnnGraph = std::shared_ptr<cudnn_frontend::graph::Graph>;

/// One launch of the request: work.at_once entries, the query heads of work.kv_heads. Pointers of all tensors
/// but lse are those of [tokens, heads * head_dim] from the launch's first token and head on, with rows as
/// far apart as shape (of k, v, dk and dv: work.kv_row) says; forward writes lse as [tokens, heads], backward
/// reads it so (`documents`), else packed [entry, head, length]. sm: of the GPU that it is for, 90 for
/// compute capability 9.0; 0: of the current one.
CudnnGraph describe_attention(const AttentionRequest& request, int sm = 0);

}  // namespace ztrain::kernels
