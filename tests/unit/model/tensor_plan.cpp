// How parameters are cut over the tensor axis where counts do not divide.
#include "model/tensor_plan.hpp"

#include <gtest/gtest.h>

namespace ztrain::tensor_plan_test {
namespace {

config::Model model_of(std::int64_t queries, std::int64_t keys) {
  config::Model m;
  m.num_attention_heads = queries;
  m.num_key_value_heads = keys;
  m.head_dim = 4;
  m.intermediate_size = m.vocab_size = 320;
  return m;
}

/// What each rank has of a dim of `size`, in items.
std::vector<model::Rows> parts_of(const model::TensorPlan& plan, const char* parameter, std::int64_t size,
                                  int ranks, std::int64_t item) {
  const model::ParameterCut* cut = plan.find(parameter);
  if (!cut->taken.empty()) {
    std::vector<model::Rows> parts = cut->taken;
    for (model::Rows& part : parts) part = {part.begin / item, part.end / item};
    return parts;
  }
  std::vector<model::Rows> parts;
  for (int r = 0; r < ranks; ++r)
    parts.push_back({cut->slice.begin(size, r) / item, cut->slice.begin(size, r + 1) / item});
  return parts;
}

TEST(TensorPlan, EveryRankHasTheKeysOfItsQueriesAndTheFirstHasMost) {
  for (const auto& [queries, keys] : {std::pair{6, 3}, {6, 6}, {5, 5}, {24, 8}, {12, 2}, {7, 1}, {8, 4}})
    for (int ranks = 1; ranks <= queries; ++ranks) {
      SCOPED_TRACE(testing::Message() << queries << " heads, " << keys << " of keys, " << ranks << " ranks");
      const model::TensorPlan plan = model::decoder_tensor_plan(model_of(queries, keys), ranks);
      const auto q = parts_of(plan, "model.layers.0.self_attn.q_proj.weight", queries * 4, ranks, 4);
      const auto k = parts_of(plan, "model.layers.0.self_attn.k_proj.weight", keys * 4, ranks, 4);
      const auto o = parts_of(plan, "model.layers.0.self_attn.o_proj.weight", queries * 4, ranks, 4);
      ASSERT_EQ(q.size(), static_cast<std::size_t>(ranks));
      std::int64_t end = 0;
      for (std::size_t r = 0; r < q.size(); ++r) {
        EXPECT_EQ(q[r].begin, end);
        EXPECT_EQ(std::pair(o[r].begin, o[r].end), std::pair(q[r].begin, q[r].end));
        end = q[r].end;
        const std::int64_t own = q[r].end - q[r].begin, of_keys = k[r].end - k[r].begin,
                           group = queries / keys;
        EXPECT_GT(own, 0);
        EXPECT_LE(own, q[0].end - q[0].begin);
        EXPECT_LE(of_keys, k[0].end - k[0].begin);
        EXPECT_EQ(own % of_keys, 0) << "attention takes as many queries to each head of keys";
        EXPECT_LE(k[r].begin * group, q[r].begin);
        EXPECT_GE(k[r].end * group, q[r].end);
      }
      EXPECT_EQ(end, queries);
    }
}

/// Products on GPUs ask for sizes of so many elements; what does not have them is cut anywhere.
TEST(TensorPlan, FeedForwardsAreCutAtMultiplesOfSixteen) {
  config::Model m = model_of(12, 12);
  const auto sizes = [&](int ranks) {
    std::vector<std::int64_t> found;
    const auto parts = parts_of(model::decoder_tensor_plan(m, ranks), "model.layers.0.mlp.up_proj.weight",
                                m.intermediate_size, ranks, 1);
    for (const model::Rows& part : parts) found.push_back(part.end - part.begin);
    return found;
  };
  EXPECT_EQ(sizes(3), (std::vector<std::int64_t>{112, 112, 96}));
  EXPECT_EQ(sizes(4), (std::vector<std::int64_t>{80, 80, 80, 80}));
  m.intermediate_size = 53;
  EXPECT_EQ(sizes(3), (std::vector<std::int64_t>{18, 18, 17}));
}

TEST(TensorPlan, ExpertsAreCutAsTheirFeedForwardIs) {
  config::Model m = model_of(4, 4);
  m.family = "qwen2_moe";
  m.num_hidden_layers = m.num_experts = 4;
  m.moe_intermediate_size = 48, m.shared_expert_intermediate_size = 10;
  const model::TensorPlan plan = model::decoder_tensor_plan(m, 2);
  const std::string p = "model.layers.3.mlp.";
  const auto cut = [&](const std::string& name) {
    const model::ParameterCut* found = plan.find(p + name);
    return found == nullptr ? TensorSlice{} : found->slice;
  };
  const TensorSlice columns{1, 2, {0, 32, 48}}, shared{0, 2};
  EXPECT_EQ(cut("experts.gate_proj.weight"), columns);
  EXPECT_EQ(cut("experts.up_proj.weight"), columns);
  EXPECT_EQ(cut("experts.down_proj.weight"), (TensorSlice{2, 2, {0, 32, 48}}));
  EXPECT_EQ(cut("shared_expert.up_proj.weight"), shared);
  EXPECT_EQ(cut("shared_expert.down_proj.weight"), (TensorSlice{1, 2}));
  EXPECT_EQ(cut("shared_expert.down_proj.lora_A.weight"), (TensorSlice{1, 2}));
  EXPECT_EQ(cut("shared_expert.up_proj.lora_B.weight"), shared);
  EXPECT_EQ(cut("down_proj.weight"), (TensorSlice{1, 2}));
  for (const char* whole : {"gate.weight", "shared_expert_gate.weight", "shared_expert.up_proj.lora_A.weight",
                            "shared_expert.down_proj.lora_B.weight"})
    EXPECT_TRUE(cut(whole).whole()) << whole;
}

TEST(TensorPlan, EachRankNeedsAPartOfAll) {
  config::Model m = model_of(12, 4);
  EXPECT_EQ(model::most_tensor_ranks(m), 12);
  m.intermediate_size = 5;
  EXPECT_EQ(model::most_tensor_ranks(m), 5);
  m.vocab_size = 3;
  EXPECT_EQ(model::most_tensor_ranks(m), 3);
  m.num_hidden_layers = m.num_experts = m.moe_intermediate_size = 2;
  EXPECT_EQ(model::most_tensor_ranks(m), 2);
  m.intermediate_size = 1;
  EXPECT_EQ(model::most_tensor_ranks(m), 2) << "no layer is dense";
  m.mlp_only_layers = {1};
  EXPECT_EQ(model::most_tensor_ranks(m), 1);
}

}  // namespace
}  // namespace ztrain::tensor_plan_test
