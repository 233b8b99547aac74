// The graphs that cuDNN is given, checked by its own rules. Needs the library, but no GPU: nothing is
// compiled for one, and nothing runs.

#include <gtest/gtest.h>

#include "kernels/attention_graph_cudnn.hpp"

namespace ztrain::kernels::attention_graph_test {
namespace {

using enum AttentionWay;

/// What is wrong with the graph of one launch on a GPU of this compute capability; empty: nothing.
std::string problem(const AttentionShape& s, AttentionWay way, bool backward, int sm,
                    DType type = DType::bf16) {
  const AttentionWork work =
      backward ? attention_backward_work(s, type, way) : attention_forward_work(s, way);
  return check_graph(*describe_attention({s, 0.125, type, work, backward}, sm));
}

void expect_all_ways(const AttentionShape& s, int sm) {
  for (const DType type : {DType::bf16, DType::f16})
    for (const bool backward : {false, true}) {
      const AttentionWays ways =
          backward ? attention_backward_ways(s, type) : attention_forward_ways(s, type);
      ASSERT_GT(ways.count, 1) << "only the streaming kernels were left";
      for (int i = 0; i + 1 < ways.count; ++i) {
        const AttentionWay way = ways.way[static_cast<std::size_t>(i)];
        EXPECT_EQ(problem(s, way, backward, sm, type), "")
            << name_of(way) << (backward ? " backward" : " forward") << " on sm_" << sm << ", " << s.documents
            << " documents, window " << s.window << ", heads of " << s.head_dim << ", row " << s.row;
      }
    }
}

/// Heads of Llama 3 8B, Qwen2.5 0.5B and one whose groups are single heads, on sequences of 2048 tokens.
class AttentionGraph : public ::testing::TestWithParam<AttentionShape> {};
INSTANTIATE_TEST_SUITE_P(Models, AttentionGraph,
                         ::testing::Values(AttentionShape{8192, 32, 8, 128}, AttentionShape{8192, 14, 2, 64},
                                           AttentionShape{8192, 16, 16, 96}));

TEST_P(AttentionGraph, IsAcceptedInEveryWay) {
  AttentionShape s = GetParam();
  s.sequence = 2048;
  for (const std::int64_t window : {0, 512})
    for (const bool deterministic : {true, false})
      for (const std::int64_t documents : {4, 40, 0})
        for (const std::int64_t row : {std::int64_t{0}, (s.heads + 2 * s.kv_heads) * s.head_dim}) {
          s.window = window;
          s.deterministic = deterministic;
          s.documents = documents;
          s.row = row;
          expect_all_ways(s, 90);
          // Ampere has no backward over packed documents.
          if (deterministic || documents != 40) expect_all_ways(s, 80);
        }
}

TEST(AttentionGraphs, RowsAreThoseOfColumns) {
  using enum AttentionTensor;
  constexpr std::int64_t row = 48 * 128, dense = 32 * 128, dense_kv = 8 * 128;
  const AttentionShape s{8192, 32, 8, 128, 0, row, 2048, 40, false};
  for (const AttentionWay way : {documents, masked, sequences}) {
    SCOPED_TRACE(name_of(way));
    const CudnnGraph forward =
        describe_attention({s, 0.125, DType::bf16, attention_forward_work(s, way), false}, 90);
    for (const AttentionTensor t : {q, k, v}) EXPECT_EQ(row_of(forward, t), row);
    EXPECT_EQ(row_of(forward, o), dense);
    const CudnnGraph backward =
        describe_attention({s, 0.125, DType::bf16, attention_backward_work(s, DType::bf16, way), true}, 90);
    for (const AttentionTensor t : {q, dq}) EXPECT_EQ(row_of(backward, t), row);
    for (const AttentionTensor t : {o, dout}) EXPECT_EQ(row_of(backward, t), dense);
    // Of packed documents they are copies.
    for (const AttentionTensor t : {k, v, dk, dv})
      EXPECT_EQ(row_of(backward, t), way == documents ? dense_kv : row);
  }
}

/// cuDNN itself would not notice, and read wrong elements.
TEST(AttentionGraphs, RowsOffTheAlignmentAreRefused) {
  const AttentionShape s{8192, 32, 8, 128, 0, 48 * 128 + 4, 2048, 4, true};
  EXPECT_NE(problem(s, sequences, false, 90), "");
  EXPECT_NE(problem(s, sequences, true, 90), "");
}

TEST(AttentionGraphs, WhatAGpuLacksIsSaid) {
  const AttentionShape packed{8192, 32, 8, 128, 0, 0, 2048, 40, false};
  EXPECT_NE(problem(packed, documents, true, 80), "");
  EXPECT_EQ(problem(packed, documents, true, 90), "");
  const AttentionShape wide{4096, 8, 8, 256, 0, 0, 4096, 1, false};
  EXPECT_NE(problem(wide, sequences, true, 80), "");
  EXPECT_EQ(problem(wide, sequences, true, 90), "");
}

}  // namespace
}  // namespace ztrain::kernels::attention_graph_test
