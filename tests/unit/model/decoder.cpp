// What the dims of a family make of the decoder: parameters, windows, costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "config/strategy.hpp"
#include "kernels/attention/record.hpp"
#include "model/attention_span.hpp"
#include "model/builder.hpp"
#include "tests/support/node_index.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::decoder_test {
namespace {

constexpr std::int64_t tokens = 32;

config::Model small_dims() {
  config::Model m = test::small_dims(3, false);
  m.num_attention_heads = 4;
  m.num_key_value_heads = 2;
  m.head_dim = 14;
  return m;
}

model::Graph graph_of(const config::Model& dims) {
  return model::decoder(dims, {tokens, DType::bf16, model::Objective::loss});
}

/// Shape of a parameter; empty where the model has none of this name.
Shape shape_of(const model::Graph& graph, const std::string& name) {
  for (const model::Parameter& p : graph.parameters)
    if (p.name == name) return p.shape;
  return {};
}

std::int64_t count_of(const model::Graph& graph) {
  std::int64_t sum = 0;
  for (const model::Parameter& p : graph.parameters) sum += elements(p.shape);
  return sum;
}

TEST(Decoder, HasTheParametersThatTheDimsAskFor) {
  config::Model dims = small_dims();
  const model::Graph plain = graph_of(dims);
  dims.attention_bias = dims.attention_output_bias = dims.qk_norm = true;
  const model::Graph all = graph_of(dims);
  const std::string p = "model.layers.1.self_attn.";
  const std::pair<const char*, Shape> rows[] = {{"q_proj.bias", {56}},   {"k_proj.bias", {28}},
                                                {"v_proj.bias", {28}},   {"o_proj.bias", {40}},
                                                {"q_norm.weight", {14}}, {"k_norm.weight", {14}}};
  std::int64_t more = 0;
  for (const auto& [name, shape] : rows) {
    EXPECT_EQ(shape_of(all, p + name), shape) << name;
    EXPECT_EQ(shape_of(plain, p + name), Shape{}) << name;
    more += shape[0];
  }
  EXPECT_EQ(count_of(all), count_of(plain) + 3 * more);
  for (const model::Parameter& one : all.parameters) EXPECT_EQ(one.decay, one.shape.size() > 1) << one.name;
}

TEST(Decoder, NormsOfHeadsArePiecesOfQkvWithAStatisticPerHead) {
  config::Model dims = small_dims();
  dims.qk_norm = true;
  const model::Graph graph = graph_of(dims);
  const model::Node& q = graph.nodes[test::node_index(graph, "model.layers.0.self_attn.q_norm")];
  const model::Node& k = graph.nodes[test::node_index(graph, "model.layers.0.self_attn.k_norm")];
  EXPECT_EQ(q.piece, "qkv");
  EXPECT_EQ(graph.value(q.outputs[0]).shape, (Shape{tokens, 56}));
  EXPECT_EQ(graph.value(q.outputs[1]).shape, Shape{tokens * 4});
  EXPECT_EQ(graph.value(k.outputs[1]).shape, Shape{tokens * 2});
}

TEST(Decoder, LaterLayersHaveTheWindow) {
  config::Model dims = small_dims();
  dims.sliding_window = 8;
  dims.full_attention_layers = 2;
  const model::Graph graph = graph_of(dims);
  const std::int64_t expected[] = {0, 0, 8};
  for (int layer = 0; layer < 3; ++layer) {
    const std::string name = fmt::format("model.layers.{}.self_attn.attention", layer);
    EXPECT_EQ(record_of<Attention>(graph.nodes[test::node_index(graph, name)].attributes).window,
              expected[layer])
        << layer;
  }
}

TEST(Decoder, CostsKnowTheWindow) {
  // The exact mean over t of min(t + 1, window) is within half a token.
  for (const std::int64_t window : {1, 5, 31, 32, 33, 1000}) {
    double sum = 0;
    for (std::int64_t t = 0; t < tokens; ++t) sum += static_cast<double>(std::min(t + 1, window));
    EXPECT_NEAR(model::attention_span(tokens, window), sum / tokens, 0.5) << window;
  }
  EXPECT_EQ(model::attention_span(tokens, 0), tokens / 2.0);
  EXPECT_EQ(model::attention_span(tokens, tokens), tokens / 2.0);

  config::Model dims = small_dims();
  dims.sliding_window = 4;
  const double width = 4 * 14, full = tokens / 2.0, windowed = 4 - 16 / (2.0 * tokens);
  const model::Graph graph = graph_of(dims);
  config::Model without = dims;
  without.sliding_window = 0;
  EXPECT_DOUBLE_EQ(
      model::flops_per_token(without, graph, tokens) - model::flops_per_token(dims, graph, tokens),
      12 * width * 3 * (full - windowed));
  const program::Job job =
      program::compile(graph, test::spec_on(1, 1, config::find_strategy("NO_SHARD"), 1), 0);
  int found = 0;
  for (const program::Op& op : job.train().ops) {
    if (op.type != "attention" && op.type != "attention_grad") continue;
    const double passes = op.type == "attention" ? 1 : 2.5;
    EXPECT_DOUBLE_EQ(op.flops, passes * 4 * tokens * windowed * width) << op.name;
    ++found;
  }
  EXPECT_EQ(found, 6);
}

/// What a node reads: its values by name, and the parameters of a linear layer as theirs.
std::vector<std::string> read_by(const model::Graph& graph, const std::string& node) {
  std::vector<std::string> names;
  for (const model::ValueId v : graph.nodes[test::node_index(graph, node)].inputs)
    names.push_back(graph.value(v).name);
  return names;
}

TEST(Decoder, LayersReadWhatTheyShould) {
  const model::Graph graph = graph_of(small_dims());
  const std::string p = "model.layers.1.", a = p + "self_attn.", f = p + "mlp.";
  using Names = std::vector<std::string>;
  EXPECT_EQ(read_by(graph, p + "input_layernorm"),
            (Names{"model.layers.0.mlp_residual", p + "input_layernorm.weight"}));
  for (const std::string which : {"q", "k", "v"})
    EXPECT_EQ(read_by(graph, a + which + "_proj"),
              (Names{p + "input_layernorm", a + which + "_proj.weight"}));
  for (const std::string which : {"q", "k"})
    EXPECT_EQ(read_by(graph, a + which + "_rope"), (Names{a + which + "_proj", "rope_table"}));
  EXPECT_EQ(read_by(graph, a + "attention"),
            (Names{a + "q_rope", a + "k_rope", a + "v_proj", "document_start"}));
  EXPECT_EQ(read_by(graph, a + "o_proj"), (Names{a + "attention", a + "o_proj.weight"}));
  EXPECT_EQ(read_by(graph, p + "attention_residual"), (Names{"model.layers.0.mlp_residual", a + "o_proj"}));
  EXPECT_EQ(read_by(graph, p + "post_attention_layernorm"),
            (Names{p + "attention_residual", p + "post_attention_layernorm.weight"}));
  for (const std::string which : {"gate", "up"})
    EXPECT_EQ(read_by(graph, f + which + "_proj"),
              (Names{p + "post_attention_layernorm", f + which + "_proj.weight"}));
  EXPECT_EQ(read_by(graph, f + "swiglu"), (Names{f + "gate_proj", f + "up_proj"}));
  EXPECT_EQ(read_by(graph, f + "down_proj"), (Names{f + "swiglu", f + "down_proj.weight"}));
  EXPECT_EQ(read_by(graph, p + "mlp_residual"), (Names{p + "attention_residual", f + "down_proj"}));
  EXPECT_EQ(read_by(graph, "lm_head"), (Names{"model.norm", "lm_head.weight", "targets", "weights"}));
}

/// Layer 1 of three is dense.
config::Model mixture_dims() {
  config::Model m = small_dims();
  m.family = "qwen2_moe";
  m.num_experts = 6, m.num_experts_per_tok = 2, m.moe_intermediate_size = 20;
  m.shared_expert_intermediate_size = 12;
  m.scoring_func = "softmax";
  m.mlp_only_layers = {1};
  return m;
}

TEST(Decoder, ExpertsHaveOneTensorALayerAndTheRouterIsWhole) {
  const config::Model dims = mixture_dims();
  const model::Graph graph = graph_of(dims);
  const std::string p = "model.layers.2.mlp.", e = p + "experts.", s = p + "shared_expert.";
  const std::int64_t d = dims.hidden_size;
  const std::pair<std::string, Shape> rows[] = {{p + "gate.weight", {6, d}},
                                                {e + "gate_proj.weight", {6, 20, d}},
                                                {e + "up_proj.weight", {6, 20, d}},
                                                {e + "down_proj.weight", {6, d, 20}},
                                                {s + "up_proj.weight", {12, d}},
                                                {s + "down_proj.weight", {d, 12}},
                                                {p + "shared_expert_gate.weight", {1, d}},
                                                {p + "up_proj.weight", {}}};
  for (const auto& [name, shape] : rows) EXPECT_EQ(shape_of(graph, name), shape) << name;
  EXPECT_EQ(shape_of(graph, "model.layers.1.mlp.up_proj.weight"), (Shape{dims.intermediate_size, d}));
  EXPECT_EQ(shape_of(graph, "model.layers.1.mlp.gate.weight"), Shape{});
  std::int64_t unused = 0;
  for (const model::Parameter& one : graph.parameters) {
    EXPECT_EQ(one.decay, one.shape.size() > 1) << one.name;
    EXPECT_EQ(one.share_of_token, one.shape.size() == 3 ? 1.0 / 3 : 1) << one.name;
    if (one.shape.size() == 3) unused += elements(one.shape) / 3 * 2;
  }
  EXPECT_EQ(unused, 2 * 3 * 4 * 20 * d);
  EXPECT_EQ(graph.active_parameters(), count_of(graph) - unused);
}

TEST(Decoder, ASparseBlockReadsWhatItShould) {
  const model::Graph graph = graph_of(mixture_dims());
  const std::string p = "model.layers.0.", m = p + "mlp.", e = m + "experts.", s = m + "shared_expert";
  const std::string x = p + "post_attention_layernorm";
  using Names = std::vector<std::string>;
  const std::pair<std::string, Names> rows[] = {{m + "gate", {x, m + "gate.weight"}},
                                                {m + "route", {m + "gate"}},
                                                {m + "slots", {m + "experts"}},
                                                {m + "dispatch", {x, m + "slots"}},
                                                {e + "swiglu", {e + "gate_proj", e + "up_proj"}},
                                                {m + "combine", {e + "down_proj", m + "slots", m + "route"}},
                                                {s + "_gate", {x, s + "_gate.weight"}},
                                                {s + ".gated", {s + ".down_proj", s + "_gate"}},
                                                {m + "sum", {m + "combine", s + ".gated"}},
                                                {p + "mlp_residual", {p + "attention_residual", m + "sum"}}};
  for (const auto& [node, read] : rows) EXPECT_EQ(read_by(graph, node), read) << node;
  for (const auto& [layer, from] :
       {std::pair("gate_proj", m + "dispatch"), {"up_proj", m + "dispatch"}, {"down_proj", e + "swiglu"}})
    EXPECT_EQ(read_by(graph, e + layer), (Names{from, m + "offsets", e + layer + ".weight"}));
  const model::Node& rows_of = graph.nodes[test::node_index(graph, m + "dispatch")];
  EXPECT_EQ(graph.value(rows_of.outputs[0]).shape, (Shape{2 * tokens, 40}));
  EXPECT_EQ(rows_of.piece, "dispatch");
  const model::Node& logits = graph.nodes[test::node_index(graph, m + "gate")];
  EXPECT_EQ(graph.value(logits.outputs[0]).dtype, DType::f32);
}

TEST(Builder, RoundsFactorsToTheDtypeOfActivations) {
  const double root = std::sqrt(2048.0);
  EXPECT_EQ(model::Builder(DType::bf16).rounded(root), 45.25);
  EXPECT_EQ(model::Builder(DType::f16).rounded(root), 45.25);
  EXPECT_EQ(model::Builder(DType::f32).rounded(root), static_cast<double>(static_cast<float>(root)));
  EXPECT_EQ(model::Builder(DType::f64).rounded(root), root);
}

}  // namespace
}  // namespace ztrain::decoder_test
