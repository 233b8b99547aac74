// Frozen parameters and low-rank adapters: what the graph gets, and what a job of it holds, computes and
// gathers.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "config/strategy.hpp"
#include "model/lora.hpp"
#include "model/trainable.hpp"
#include "program/jobs/pass_list.hpp"
#include "tests/support/node_index.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::adapters_test {
namespace {

using program::ActionKind;
using program::Job;
using program::Op;
using program::Program;
using test::refusal;
using test::small_model;
using test::spec_on;

model::Graph adapted(const config::Lora& lora, int layers = 2, const config::Model& choice = {}) {
  model::Graph graph = small_model(layers);
  model::add_adapters(graph, lora, 5);
  model::mark_trainable(graph, choice);
  return graph;
}

const model::Parameter& parameter(const model::Graph& graph, const std::string& name) {
  for (const model::Parameter& p : graph.parameters)
    if (p.name == name) return p;
  throw std::out_of_range(name);
}

std::set<std::string> trained(const model::Graph& graph) {
  std::set<std::string> names;
  for (const model::Parameter& p : graph.parameters)
    if (p.trainable) names.insert(p.name);
  return names;
}

std::int64_t persistent_bytes(const Program& p, program::Category category) {
  std::int64_t bytes = 0;
  for (const program::Tensor& t : p.tensors)
    if (t.persistent && t.category == category && t.base == program::no_tensor) bytes += t.bytes();
  return bytes;
}

TEST(Adapters, StandBesideTheirLayers) {
  const model::Graph graph = adapted({3, 12, 0, {"q_proj", "model.layers.1.mlp.*"}});
  const std::set<std::string> expected{"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj",
                                       "model.layers.1.mlp.gate_proj", "model.layers.1.mlp.up_proj",
                                       "model.layers.1.mlp.down_proj"};
  std::set<std::string> names;
  for (const std::string& name : expected) names.insert({name + ".lora_A.weight", name + ".lora_B.weight"});
  EXPECT_EQ(trained(graph), names);
  const model::Parameter &a = parameter(graph, "model.layers.1.mlp.down_proj.lora_A.weight"),
                         &b = parameter(graph, "model.layers.1.mlp.down_proj.lora_B.weight");
  EXPECT_EQ(a.shape, (Shape{3, 100}));
  EXPECT_EQ(b.shape, (Shape{40, 3}));
  EXPECT_EQ(a.init, model::Init::uniform);
  EXPECT_DOUBLE_EQ(a.init_std, 0.1);
  EXPECT_EQ(b.init, model::Init::zeros);
  EXPECT_TRUE(a.adapter && b.adapter && a.decay);
  const model::Node& scale =
      graph.nodes[test::node_index(graph, "model.layers.0.self_attn.q_proj.lora_scale")];
  EXPECT_EQ(scale.attributes.get<double>("factor"), 4);
}

model::Graph adapted_mixture(config::Lora lora) {
  config::Model dims = test::small_dims(1, false);
  dims.family = "qwen2_moe", dims.scoring_func = "softmax";
  dims.num_experts = 6, dims.num_experts_per_tok = 2, dims.moe_intermediate_size = 20;
  dims.shared_expert_intermediate_size = 28;
  model::Graph graph = model::decoder(dims, {32, DType::bf16, model::Objective::loss});
  model::add_adapters(graph, lora, 5);
  model::mark_trainable(graph, dims);
  return graph;
}

/// Gate and up share A and what it makes of their rows.
TEST(Adapters, OfExpertsStandBesideEachOfThem) {
  const model::Graph graph = adapted_mixture({3, 12, 0, {"mlp.experts.*"}});
  const std::string experts = "model.layers.0.mlp.experts.";
  const std::map<std::string, Shape> expected{{"gate_up_proj.lora_A.weight", {6, 3, 40}},
                                              {"gate_proj.lora_B.weight", {6, 20, 3}},
                                              {"up_proj.lora_B.weight", {6, 20, 3}},
                                              {"down_proj.lora_A.weight", {6, 3, 20}},
                                              {"down_proj.lora_B.weight", {6, 40, 3}}};
  EXPECT_EQ(trained(graph).size(), expected.size());
  for (const auto& [name, shape] : expected) {
    const model::Parameter& p = parameter(graph, experts + name);
    EXPECT_EQ(p.shape, shape) << name;
    EXPECT_DOUBLE_EQ(p.share_of_token, 2.0 / 6) << name;
  }
  EXPECT_DOUBLE_EQ(parameter(graph, experts + "down_proj.lora_A.weight").init_std, 1 / std::sqrt(20));
  const auto inner = [&](const std::string& name) {
    return graph.nodes[test::node_index(graph, experts + name)].inputs[0];
  };
  EXPECT_EQ(inner("gate_proj.lora_B"), inner("up_proj.lora_B"));
  EXPECT_EQ(std::ranges::count(graph.nodes, "scale", &model::Node::op), 2);
}

TEST(Adapters, ExpertsHaveThemIfATargetNamesThem) {
  EXPECT_EQ(trained(adapted_mixture({3, 12, 0.1, {"down_proj", "*.mlp.*"}})),
            (std::set<std::string>{"model.layers.0.mlp.shared_expert.gate_proj.lora_A.weight",
                                   "model.layers.0.mlp.shared_expert.gate_proj.lora_B.weight",
                                   "model.layers.0.mlp.shared_expert.up_proj.lora_A.weight",
                                   "model.layers.0.mlp.shared_expert.up_proj.lora_B.weight",
                                   "model.layers.0.mlp.shared_expert.down_proj.lora_A.weight",
                                   "model.layers.0.mlp.shared_expert.down_proj.lora_B.weight",
                                   "model.layers.0.mlp.shared_expert_gate.lora_A.weight",
                                   "model.layers.0.mlp.shared_expert_gate.lora_B.weight"}));
  EXPECT_EQ(trained(adapted_mixture({3, 12, 0, {"model.layers.0.mlp.experts.down_proj"}})).size(), 2U);
  EXPECT_NE(
      refusal([&] {
        adapted_mixture({3, 12, 0, {"mlp.experts.gate_proj"}});
      }).find("legal are down_proj, gate_proj, k_proj, mlp.experts.down_proj, mlp.experts.gate_up_proj"),
      std::string::npos);
  EXPECT_EQ(
      refusal([&] {
        adapted_mixture({3, 12, 0.5, {"mlp.experts.down_proj"}});
      }),
      "lora.targets: 'mlp.experts.down_proj' gives adapters to experts, and these have no dropout, as in "
      "PEFT; lora.dropout = 0.5: set it to 0, or leave experts out of lora.targets");
}

TEST(Adapters, WhatReadTheLayerReadsTheSum) {
  const model::Graph plain = small_model(), graph = adapted({2, 2, 0.1, {"v_proj"}});
  for (const model::Node& node : plain.nodes) {
    const model::Node& same = graph.nodes[test::node_index(graph, node.name)];
    EXPECT_EQ(same.inputs, node.inputs) << node.name;
  }
  const std::string v = "model.layers.0.self_attn.v_proj";
  const model::Node& sum = graph.nodes[test::node_index(graph, v + ".lora_sum")];
  EXPECT_EQ(sum.outputs, plain.nodes[test::node_index(plain, v)].outputs);
  EXPECT_EQ(sum.piece, "qkv");
  EXPECT_EQ(sum.block, 1);
}

TEST(Adapters, MagnitudesScaleWhatDropoutLeaves) {
  const std::string v = "model.layers.0.self_attn.v_proj";
  const model::Graph plain = small_model();
  const model::Node& layer = plain.nodes[test::node_index(plain, v)];
  for (const double rate : {0.0, 0.1}) {
    config::Lora lora{2, 2, rate, {"v_proj"}};
    lora.dora = true;
    const model::Graph graph = adapted(lora);
    const model::Parameter& magnitude = parameter(graph, v + ".lora_magnitude_vector");
    EXPECT_EQ(magnitude.shape, (Shape{parameter(graph, v + ".weight").shape[0]}));
    EXPECT_EQ(magnitude.init, model::Init::row_norms);
    EXPECT_TRUE(magnitude.trainable && magnitude.adapter && !magnitude.decay);
    const auto node = [&](const char* ending) { return graph.nodes[test::node_index(graph, v + ending)]; };
    EXPECT_EQ(node(rate > 0 ? ".lora_output" : ".lora_magnitude").outputs, layer.outputs);
    EXPECT_EQ(node("").inputs[1], layer.inputs[1]);
    EXPECT_EQ(node("").inputs[0] == layer.inputs[0], rate == 0) << "the scaled product is of what is left";
    if (rate == 0) continue;
    EXPECT_EQ(node(".lora_taken").inputs[1], layer.inputs[1]);
    EXPECT_EQ(model::layer_of(node(".lora_taken")), v);
  }
}

TEST(Adapters, TargetsThatAreNoLayersAreNamed) {
  const auto message = [](std::vector<std::string> targets) {
    return refusal([&] { adapted({2, 2, 0, std::move(targets)}); });
  };
  EXPECT_NE(message({"q_proj", "query"}).find("lora.targets: 'query' is no linear layer"), std::string::npos);
  EXPECT_NE(message({"all-linear", "q_proj"}).find("'all-linear' stands for all linear layers"),
            std::string::npos);
  EXPECT_NE(message({"lm_head"}).find("'lm_head': adapters of the head are not supported"),
            std::string::npos);
  EXPECT_NE(message({"embed_tokens"}).find("adapters of the embedding are not supported"), std::string::npos);
  EXPECT_NE(message({"query"}).find("down_proj, gate_proj, k_proj"), std::string::npos);
  EXPECT_NE(message({"model.layers.7.*"}).find("'model.layers.7.*'"), std::string::npos);
  EXPECT_NE(message({}).find("lora.targets"), std::string::npos);
}

/// What is generated from has the parameters that were trained.
TEST(Adapters, AreTheSameForLossAndLogits) {
  config::Deck deck;
  deck.model = test::small_dims(2, false);
  deck.model.family = "llama";
  deck.precision.fp8 = "none";
  deck.lora = {2, 2, 0, {"*"}};
  std::set<std::string> names[2];
  for (const auto objective : {model::Objective::loss, model::Objective::logits})
    for (const model::Parameter& p : program::model_graph(deck, {32, DType::f32, objective}).parameters)
      names[objective == model::Objective::logits].insert(p.name);
  EXPECT_EQ(names[0], names[1]);
  EXPECT_FALSE(names[0].contains("lm_head.lora_A.weight"));
  EXPECT_TRUE(names[0].contains("model.layers.1.mlp.down_proj.lora_A.weight"));
}

/// FLOPs of a token are those of the products and attention that the step's ops do.
TEST(Trainable, FlopsAreThoseOfTheOps) {
  const auto of_ops = [](const model::Graph& graph) {
    const Job job = program::compile(graph, spec_on(1, 1, config::find_strategy("NO_SHARD"), 1), 0);
    double flops = 0;
    for (const Op& op : job.train().ops) flops += op.flops;
    return flops / 32;
  };
  const config::Model dims = test::small_dims(4, false);
  config::Model upper;
  upper.trainable = {"model.layers.2.*", "model.layers.3.*", "lm_head.weight"};
  const double all = model::flops_per_token(dims, adapted({}, 4), 32),
               some = model::flops_per_token(dims, adapted({}, 4, upper), 32);
  EXPECT_LT(some, 0.75 * all);
  // The first trained block computes no gradient of its input; norms and softmax count only once each way.
  EXPECT_NEAR(some, of_ops(adapted({}, 4, upper)), 0.06 * all);
  EXPECT_NEAR(all, of_ops(adapted({}, 4)), 0.06 * all);
}

TEST(Trainable, IsChosenByPatterns) {
  config::Model choice;
  EXPECT_EQ(trained(adapted({}, 2, choice)).size(), small_model().parameters.size());
  choice.trainable = {"model.layers.1.mlp.*", "*.input_layernorm.weight"};
  choice.frozen = {"*.up_proj.weight", "model.layers.0.*"};
  EXPECT_EQ(
      trained(adapted({}, 2, choice)),
      (std::set<std::string>{"model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.down_proj.weight",
                             "model.layers.1.input_layernorm.weight"}));
  EXPECT_EQ(trained(adapted({1, 1, 0, {"q_proj"}}, 2, choice)).size(), 3 + 4);
  const auto message = [](config::Model m) { return refusal([&] { adapted({}, 2, m); }); };
  config::Model wrong;
  wrong.trainable = {"model.layer.*"};
  EXPECT_NE(message(wrong).find("model.trainable: 'model.layer.*' matches no parameter"), std::string::npos);
  model::Graph tied = small_model();
  std::erase_if(tied.parameters, [](const model::Parameter& p) { return p.name == "lm_head.weight"; });
  wrong.trainable = {"lm_head.*"};
  EXPECT_EQ(refusal([&] { model::mark_trainable(tied, wrong); }),
            "model.trainable: 'lm_head.*' matches no parameter: the head is tied to the embedding "
            "(model.tie_word_embeddings), and its weight is model.embed_tokens.weight");
  config::Model none;
  none.frozen = {"*"};
  EXPECT_NE(message(none).find("model.frozen freezes every parameter"), std::string::npos);
}

/// A rank keeps the frozen weights in the computing type, and of the adapters a master and two moments
/// besides.
TEST(Trainable, FrozenParametersHaveNoState) {
  for (const auto& strategy : config::strategies()) {
    const model::Graph graph = adapted({4, 8, 0, {"q_proj", "down_proj"}});
    const Job job = program::compile(graph, spec_on(1, 2, strategy), 1);
    std::int64_t all = 0, some = 0;
    for (const FlatUnit& unit : job.layout.units()) {
      const bool trains = job.graph.units[static_cast<std::size_t>(unit.unit)].trainable;
      all += unit.elements();
      some += trains ? unit.elements() : 0;
    }
    const std::int64_t parts = strategy.optimizer_sharded ? 2 : 1;
    EXPECT_GT(some, 0);
    EXPECT_EQ(persistent_bytes(job.train(), program::Category::optimizer), 2 * 4 * some / parts)
        << strategy.name;
    EXPECT_EQ(persistent_bytes(job.train(), program::Category::master), 4 * some / parts) << strategy.name;
    EXPECT_EQ(persistent_bytes(job.train(), program::Category::parameter),
              2 * all / (strategy.parameters_sharded ? 2 : 1))
        << strategy.name;
    std::int64_t gradients = 0;
    for (const program::Tensor& t : job.train().tensors)
      if (t.category == program::Category::gradient && t.first >= 0 && t.name.starts_with("gradient.shard."))
        gradients += elements(t.shape);
    EXPECT_EQ(gradients, some / 2) << strategy.name;
  }
}

/// The frozen and the trained part of a block travel together: no more gathers than a block's two.
TEST(Trainable, PartsOfABlockAreGatheredTogether) {
  const model::Graph graph = adapted({4, 8, 0, {"q_proj", "down_proj"}}, 4);
  for (const int prefetch : {0, 1, 2}) {
    program::JobSpec spec = spec_on(1, 2, config::find_strategy("FULL_SHARD"), 1);
    spec.sharding.gather.forward_prefetch = prefetch;
    spec.sharding.gather.max_units = prefetch == 0 ? 1 : 0;
    const Job job = program::compile(graph, spec, 0);
    std::map<std::string, int> gathers;
    for (const Op& op : job.train().ops)
      if (op.type == "all_gather" && op.action.kind == ActionKind::gather && op.action.micro >= 0)
        ++gathers[job.train().units[static_cast<std::size_t>(op.action.part)]];
    for (const int layer : {0, 1, 2})
      for (const char* part : {"", " (frozen)"})
        EXPECT_EQ(gathers[fmt::format("model.layers.{}{}", layer, part)], 2) << layer << part;
  }
}

TEST(Trainable, BackwardEndsWhereNothingBelowIsTrained) {
  config::Model choice;
  choice.trainable = {"model.layers.2.mlp.down_proj.weight", "model.layers.3.*"};
  const Job job =
      program::compile(adapted({}, 4, choice), spec_on(1, 1, config::find_strategy("FULL_SHARD"), 1), 0);
  std::set<std::string> blocks, products;
  for (const Op& op : job.train().ops) {
    if (op.action.kind != ActionKind::backward) continue;
    blocks.insert(job.train().blocks[static_cast<std::size_t>(op.action.part)]);
    if (op.type.starts_with("linear_grad_") && op.action.part == 3) products.insert(op.type + " " + op.name);
  }
  EXPECT_EQ(blocks, (std::set<std::string>{"model.layers.2", "model.layers.3", "lm_head"}));
  EXPECT_EQ(products, (std::set<std::string>{"linear_grad_weight model.layers.2.mlp.down_proj"}));
}

TEST(Trainable, DropoutKnowsItsTokensAndIsAbsentInEvaluation) {
  program::JobSpec spec = spec_on(2, 2, config::find_strategy("FULL_SHARD"), 3);
  spec.recompute.every = 1;
  const model::Graph graph = adapted({2, 2, 0.5, {"q_proj"}});
  for (int rank = 0; rank < 4; ++rank) {
    const Job job = program::compile(graph, spec, rank);
    int count = 0;
    for (const Op& op : job.train().ops)
      if (op.type == "dropout") {
        EXPECT_EQ(op.attributes.integer("first_token"), (op.action.micro * 4 + rank) * 32);
        ++count;
      }
    EXPECT_GE(count, 3 * 2 * 2) << "forward and backward of two layers";
    for (const Op& op : job.evaluate().ops) EXPECT_NE(op.type, "dropout");
  }
}

/// Of 6 heads on 2 of keys, 3 ranks have 3, 2 and 1.
TEST(Trainable, DropoutKnowsItsColumnsWhereRanksHaveOtherNumbers) {
  config::Model dims = test::small_dims(1, false);
  dims.num_attention_heads = 6, dims.num_key_value_heads = 2;
  model::Graph graph = model::decoder(dims, {32, DType::bf16});
  model::add_adapters(graph, {2, 2, 0.5, {"o_proj"}}, 5);
  model::mark_trainable(graph, dims);
  program::JobSpec spec = spec_on(1, 1, config::find_strategy("NO_SHARD"));
  spec.mesh[Axis::tensor] = 3;
  spec.tensor = model::decoder_tensor_plan(dims, 3);
  spec.tensor.sequence_parallel = false;
  std::vector<std::int64_t> first;
  for (int rank = 0; rank < 3; ++rank) {
    const Job job = program::compile(graph, spec, rank);
    const auto mask = std::ranges::find(job.train().ops, "dropout", &Op::type);
    ASSERT_NE(mask, job.train().ops.end());
    EXPECT_EQ(mask->attributes.integer("columns"), 6 * dims.head_dim);
    first.push_back(mask->attributes.integer("first_column", 0) / dims.head_dim);
  }
  EXPECT_EQ(first, (std::vector<std::int64_t>{0, 3, 5}));
}

}  // namespace
}  // namespace ztrain::adapters_test
