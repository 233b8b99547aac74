// The graphs that cuDNN is given, checked by its own rules. Needs the library, but no GPU: nothing is
// compiled for one, and nothing runs.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <optional>

#include "kernels/attention/attention_graph_cudnn.hpp"

namespace ztrain::kernels::attention_graph_test {
namespace {

using enum AttentionWay;

/// How often cuDNN was asked to compare numbers: a graph does so for masks alone.
int comparisons = 0;

void count_comparison(cudnnBackendAttributeName_t name, const void* value) {
  if (name != CUDNN_ATTR_POINTWISE_MODE) return;
  const auto mode = *static_cast<const cudnnPointwiseMode_t*>(value);
  comparisons += mode >= CUDNN_POINTWISE_CMP_EQ && mode <= CUDNN_POINTWISE_CMP_LE ? 1 : 0;
}

/// What is wrong with the graph of one launch on a GPU of this compute capability; empty: nothing.
std::string problem(const AttentionShape& s, AttentionWay way, bool backward, int sm,
                    DType type = DType::bf16) {
  const AttentionWork work = attention_work_of(s, type, way, backward);
  return check_graph(*describe_attention({s, type, work, backward}, sm));
}

void expect_all_ways(const AttentionShape& s, int sm) {
  for (const DType type : {DType::bf16, DType::f16})
    for (const bool backward : {false, true}) {
      const AttentionWays ways = attention_ways(s, type, backward);
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
        describe_attention({s, DType::bf16, attention_forward_work(s, way), false}, 90);
    for (const AttentionTensor t : {q, k, v}) EXPECT_EQ(row_of(forward, t), row);
    EXPECT_EQ(row_of(forward, o), dense);
    const CudnnGraph backward =
        describe_attention({s, DType::bf16, attention_backward_work(s, DType::bf16, way), true}, 90);
    for (const AttentionTensor t : {q, dq}) EXPECT_EQ(row_of(backward, t), row);
    for (const AttentionTensor t : {o, dout}) EXPECT_EQ(row_of(backward, t), dense);
    // Of packed documents they are copies.
    for (const AttentionTensor t : {k, v, dk, dv})
      EXPECT_EQ(row_of(backward, t), way == documents ? dense_kv : row);
  }
}

/// Takes the place of cuDNN's attributes.
struct Band {
  std::optional<int> left, right;
  void set_diagonal_band_left_bound(int keys) { left = keys; }
  void set_diagonal_band_right_bound(int keys) { right = keys; }
};

TEST(AttentionGraphs, AQueryIsShownNoLaterKeysAndNoneBeforeItsWindow) {
  for (const AttentionWay way : {sequences, masked, documents})
    for (const bool backward : {false, true})
      for (const std::int64_t window : {0, 512, 2048}) {
        const AttentionShape s{8192, 32, 8, 128, window, 0, 2048, 40, false};
        const AttentionWork work = attention_work_of(s, DType::bf16, way, backward);
        const AttentionRequest request{s, DType::bf16, work, backward};
        Band band;
        set_band(band, request);
        EXPECT_EQ(band.right, 0);
        const bool windowed = window == 512 && way != masked;
        EXPECT_EQ(band.left, windowed ? std::optional(512) : std::nullopt);
        comparisons = 0;
        EXPECT_EQ(check_graph(*describe_attention(request, 90)), "");
        EXPECT_EQ(comparisons, (windowed ? 2 : 1) + (way == documents ? 2 : 0))
            << name_of(way) << (backward ? " backward" : " forward") << ", window " << window;
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

/// In the place of cuDNN's function of this name, which it calls.
extern "C" cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                                  cudnnBackendAttributeName_t name,
                                                  cudnnBackendAttributeType_t type, std::int64_t count,
                                                  const void* values) {
  ztrain::kernels::attention_graph_test::count_comparison(name, values);
  static const auto next =
      reinterpret_cast<decltype(&cudnnBackendSetAttribute)>(dlsym(RTLD_NEXT, "cudnnBackendSetAttribute"));
  return next(descriptor, name, type, count, values);
}
