// How the placing pass keeps the residual stream over the tensor axis, with norms before and behind attention
// and feed-forward.

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/communication/record.hpp"
#include "kernels/norm/record.hpp"
#include "program/passes/place.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::program::residual_stream_test {
namespace {

/// The model of a family over two tensor ranks, as rank 1 has it.
model::Graph placed(const char* family, bool sequence_parallel) {
  config::Model dims = test::small_dims(3, false);
  dims.family = family;
  dims.num_attention_heads = dims.num_key_value_heads = 4;
  dims.qk_norm = dims.family == "olmo2";
  JobSpec spec = test::spec_on(1, 1, find_strategy("FULL_SHARD"));
  spec.mesh[Axis::tensor] = 2;
  spec.tensor = model::decoder_tensor_plan(dims, 2);
  spec.tensor.sequence_parallel = sequence_parallel;
  model::Graph graph = model::decoder(dims, {32, DType::bf16, model::Objective::loss});
  place(graph, Coordinate(spec.mesh, 1), spec.tensor);
  return graph;
}

std::int64_t count_of(const model::Graph& graph, std::string_view op) {
  return std::ranges::count(graph.nodes, op, &model::Node::op);
}

TEST(ResidualStream, IsSplitByTokensInEveryBlockWhereverItsNormsAre) {
  for (const char* family : {"llama", "gemma2", "olmo2", "glm4"}) {
    SCOPED_TRACE(family);
    const model::Graph split = placed(family, true), whole = placed(family, false);
    // The embedding, and what attention and feed-forward of three blocks add.
    EXPECT_EQ(count_of(split, ScatterToAxis::op), 7);
    EXPECT_EQ(count_of(whole, ScatterToAxis::op), 0);
    // OLMo 2 sums the squares of queries and of keys over the ranks besides.
    const std::int64_t squares = count_of(split, RowSquares::op);
    EXPECT_EQ(count_of(split, ReduceFromAxis::op), squares);
    EXPECT_EQ(count_of(whole, ReduceFromAxis::op), 7 + squares);
    for (const model::Node& node : split.nodes)
      EXPECT_TRUE(node.op != RmsNorm::op || split.value(node.inputs[RmsNorm::x]).shape[0] == 16) << node.name;
  }
}

}  // namespace
}  // namespace ztrain::program::residual_stream_test
