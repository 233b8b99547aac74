#include "model/feed_forward.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "config/layers.hpp"
#include "kernels/elementwise/record.hpp"
#include "kernels/experts/record.hpp"
#include "kernels/grouped/record.hpp"

namespace ztrain::model {
namespace {

std::string part(const std::string& module, std::string_view layer) {
  return fmt::format("{}.{}", module, layer);
}

}  // namespace

ValueId FeedForward::emit(const std::string& mlp, std::int64_t layer, ValueId x) {
  return config::has_experts(m_, layer) ? mixture(mlp, x) : dense(mlp, x, m_.intermediate_size);
}

ValueId FeedForward::activated(const std::string& mlp, ValueId up) {
  b_.piece("swiglu");
  if (style_.activation != "xielu")
    return b_.activation(mlp + ".activation", up, std::string(style_.activation));
  // alpha_p and alpha_n begin at 0.8: p and n are softplus^-1 of 0.8 and of 0.8 - beta.
  const double p = std::log(std::expm1(0.8)), n = std::log(std::expm1(0.8 - Xielu{}.beta));
  const ValueId positive = b_.parameter(mlp + ".act_fn.alpha_p", {1}, Init::constant, p),
                negative = b_.parameter(mlp + ".act_fn.alpha_n", {1}, Init::constant, n);
  return b_.xielu(mlp + ".activation", up, positive, negative);
}

ValueId FeedForward::dense(const std::string& mlp, ValueId x, std::int64_t width) {
  b_.piece("gate_up");
  const std::string up = part(mlp, style_.up);
  ValueId inner;
  if (style_.gate.empty()) {
    inner = activated(mlp, linear_.project(up, x, width, m_.mlp_bias));
  } else {
    const auto gate_up = linear_.make(x, {{part(mlp, style_.gate), width}, {up, width}}, m_.mlp_bias);
    const ValueId gate = linear_.apply(gate_up[0], x), up_product = linear_.apply(gate_up[1], x);
    b_.piece("swiglu");
    inner = b_.gated_activation(mlp + ".swiglu", gate, up_product, std::string(style_.activation));
  }
  b_.piece("down");
  return linear_.project(part(mlp, style_.down), inner, m_.hidden_size, m_.mlp_bias);
}

ValueId FeedForward::selection_bias(const std::string& gate) {
  return b_.constant(gate + std::string(config::choice_bias), {m_.num_experts}, Init::zeros);
}

FeedForward::Routed FeedForward::route(const std::string& mlp, ValueId x) {
  b_.piece("router");
  const std::int64_t tokens = b_.shape(x)[0], k = m_.num_experts_per_tok;
  const Projection router = linear_.make(x, {{part(mlp, style_.router), m_.num_experts}}, m_.mlp_bias)[0];
  std::vector<ValueId> inputs{x, router.weight};
  if (router.bias >= 0) inputs.push_back(router.bias);
  const ValueId logits =
      b_.emit(RouterLogits{}, router.name, std::move(inputs), {tokens, m_.num_experts}, b_.statistics());
  const bool biased = m_.topk_method == "noaux_tc", grouped = m_.topk_method != "greedy";
  const Route choice{{.top_k = k,
                      .score = m_.scoring_func,
                      .normalise = m_.norm_topk_prob,
                      .scale = m_.routed_scaling_factor,
                      .groups = grouped ? m_.n_group : 0,
                      .top_groups = grouped ? m_.topk_group : 0,
                      .group_score = biased ? "top2" : "max",
                      .balanced = r_.balanced_routing}};
  std::vector<ValueId> scored{logits};
  if (biased) scored.push_back(selection_bias(router.name));
  const ValueId weights = b_.emit(choice, mlp + ".route", std::move(scored), {tokens, k}, b_.statistics());
  const ValueId experts = b_.extra_output(mlp + ".experts", {tokens, k}, DType::i32);
  balance_.add_layer(mlp, logits, experts, choice.score);
  const ValueId slots =
      b_.emit(SortByExpert{m_.num_experts}, mlp + ".slots", {experts}, {tokens, k}, DType::i32);
  return {weights, slots, b_.extra_output(mlp + ".offsets", {m_.num_experts + 1}, DType::i32)};
}

ValueId FeedForward::expert_weight(const std::string& name, std::int64_t out, std::int64_t in) {
  return b_.expert_parameter(name + ".weight", m_.num_experts, m_.num_experts_per_tok, {out, in},
                             Init::normal, m_.initializer_range);
}

ValueId FeedForward::expert_layer(const std::string& name, ValueId rows, ValueId offsets, ValueId weight) {
  const std::int64_t width = b_.shape(weight)[1];
  std::vector<ValueId> inputs{rows, offsets, weight};
  if (m_.mlp_bias)
    inputs.push_back(
        b_.expert_parameter(name + ".bias", m_.num_experts, m_.num_experts_per_tok, {width}, Init::zeros));
  return b_.emit(GroupedLinear{}, name, std::move(inputs), {b_.shape(rows)[0], width}, b_.compute());
}

ValueId FeedForward::mixture(const std::string& mlp, ValueId x) {
  const Routed to = route(mlp, x);
  const std::int64_t hidden = m_.hidden_size, width = m_.moe_intermediate_size;
  const std::string experts = mlp + ".experts", gate_name = part(experts, style_.gate),
                    up_name = part(experts, style_.up), down_name = part(experts, style_.down);
  b_.piece("dispatch");
  const ValueId rows = b_.emit(Permute{}, mlp + ".dispatch", {x, to.slots},
                               {b_.shape(x)[0] * m_.num_experts_per_tok, hidden}, b_.compute());
  b_.piece("gate_up");
  const ValueId gate_weight = expert_weight(gate_name, width, hidden),
                up_weight = expert_weight(up_name, width, hidden),
                gate = expert_layer(gate_name, rows, to.offsets, gate_weight),
                up = expert_layer(up_name, rows, to.offsets, up_weight);
  b_.piece("swiglu");
  const ValueId inner = b_.gated_activation(experts + ".swiglu", gate, up, std::string(style_.activation));
  b_.piece("down");
  const ValueId out = expert_layer(down_name, inner, to.offsets, expert_weight(down_name, hidden, width));
  b_.piece("combine");
  const ValueId y =
      b_.emit(Combine{}, mlp + ".combine", {out, to.slots, to.weights}, b_.shape(x), b_.compute());
  if (style_.shared_expert.empty()) return y;
  const ValueId shared = shared_expert(part(mlp, style_.shared_expert), x);
  b_.piece("combine");
  return b_.add(mlp + ".sum", y, shared);
}

ValueId FeedForward::shared_expert(const std::string& module, ValueId x) {
  const ValueId y = dense(module, x, config::shared_expert_width(m_));
  if (!style_.shared_expert_gate) return y;
  const ValueId gate = linear_.project(module + "_gate", x, 1, false);
  return b_.emit(GateRows{}, module + ".gated", {y, gate}, b_.shape(x), b_.compute());
}

}  // namespace ztrain::model
