#pragma once
// A small model whose products are of 8-bit codes, and its job on a mesh, for tests that compile and prove.

#include "config/strategy.hpp"
#include "model/fp8.hpp"
#include "model/tensor_plan.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::test {

/// 4 heads of queries and 2 of keys, of 16 columns.
inline config::Model dims_of_codes() {
  config::Model dims = small_dims(2, false);
  dims.hidden_size = 48, dims.intermediate_size = 128, dims.head_dim = 16;
  dims.num_attention_heads = 4, dims.num_key_value_heads = 2;
  return dims;
}

inline program::JobSpec in_codes(int shard, int context, int tensor, const char* scaling,
                                 bool sequence_parallel = true) {
  program::JobSpec spec = spec_on(1, shard, config::find_strategy("FULL_SHARD"));
  spec.mesh[Axis::context] = context;
  spec.mesh[Axis::tensor] = tensor;
  if (tensor > 1) spec.tensor = model::decoder_tensor_plan(dims_of_codes(), tensor);
  spec.tensor.sequence_parallel = sequence_parallel;
  spec.graph_passes.push_back(
      [=](model::Graph& graph, const Coordinate&) { model::use_fp8(graph, scaling); });
  return spec;
}

}  // namespace ztrain::test
