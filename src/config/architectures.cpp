#include "config/architectures.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "base/error.hpp"

namespace ztrain::config {
namespace {

/// Says which values of a key an architecture has.
struct KeyRule {
  const char* key;
  bool (*fits)(const Architecture&, const Model&);
  std::string (*value)(const Model&);
  std::string (*other)(const Model&);  ///< returns the value that fits if the model's does not
};

template <bool Model::*flag>
std::string text(const Model& m) {
  return m.*flag ? "true" : "false";
}
template <bool Model::*flag>
std::string negated(const Model& m) {
  return m.*flag ? "false" : "true";
}
template <std::int64_t Model::*count>
std::string text(const Model& m) {
  return fmt::to_string(m.*count);
}
std::string zero(const Model&) {
  return "0";
}

bool bias_fits(const Architecture& a, const Model& m) {
  return a.attention_bias == Has::by_config || m.attention_bias == (a.attention_bias == Has::always);
}
bool output_bias_fits(const Architecture& a, const Model& m) {
  return bias_fits(a, m) && m.attention_output_bias == (a.output_bias && m.attention_bias);
}
bool qk_norm_fits(const Architecture& a, const Model& m) {
  return m.qk_norm == a.qk_norm;
}
bool window_fits(const Architecture& a, const Model& m) {
  return m.sliding_window == 0 || a.windows != Windows::none;
}
bool full_layers_fit(const Architecture& a, const Model& m) {
  return m.full_attention_layers == 0 || a.windows == Windows::later_layers;
}

constexpr std::array key_rules{
    KeyRule{"model.attention_bias", bias_fits, text<&Model::attention_bias>, negated<&Model::attention_bias>},
    KeyRule{"model.attention_output_bias", output_bias_fits, text<&Model::attention_output_bias>,
            negated<&Model::attention_output_bias>},
    KeyRule{"model.qk_norm", qk_norm_fits, text<&Model::qk_norm>, negated<&Model::qk_norm>},
    KeyRule{"model.sliding_window", window_fits, text<&Model::sliding_window>, zero},
    KeyRule{"model.full_attention_layers", full_layers_fit, text<&Model::full_attention_layers>, zero},
};

/// Returns text such as "false, or model.family = qwen3".
std::string legal(const KeyRule& rule, const Model& m) {
  std::vector<std::string_view> others;
  for (const Architecture& a : architectures())
    if (a.family != m.family && rule.fits(a, m)) others.push_back(a.family);
  if (others.empty()) return rule.other(m);
  return fmt::format("{}, or model.family = {}", rule.other(m), fmt::join(others, " or "));
}

}  // namespace

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> table{
      {.family = "llama",
       .hf_class = "LlamaForCausalLM",
       .model_type = "llama",
       .attention_bias = Has::by_config,
       .output_bias = true,
       .mlp_bias_key = true,
       .doc = "RMSNorm, RoPE, grouped-query attention, SwiGLU; all four projections of attention may have "
              "biases (Llama 2, 3, 3.1, 3.2)."},
      {.family = "mistral",
       .hf_class = "MistralForCausalLM",
       .model_type = "mistral",
       .windows = Windows::all_layers,
       .standard_kv_heads = 8,
       .doc = "the same without biases; all layers may have a sliding window (Mistral 7B)."},
      {.family = "qwen2",
       .hf_class = "Qwen2ForCausalLM",
       .model_type = "qwen2",
       .attention_bias = Has::always,
       .windows = Windows::later_layers,
       .standard_kv_heads = 32,
       .doc = "queries, keys and values always have biases; all layers but the first may have a window (Qwen "
              "2, 2.5)."},
      {.family = "qwen3",
       .hf_class = "Qwen3ForCausalLM",
       .model_type = "qwen3",
       .attention_bias = Has::by_config,
       .output_bias = true,
       .qk_norm = true,
       .windows = Windows::later_layers,
       .standard_kv_heads = 32,
       .standard_head_dim = 128,
       .doc =
           "each head of queries and keys is normalised; biases as llama, windows as qwen2 (Qwen 3, dense)."},
  };
  return table;
}

const Architecture& find_architecture(std::string_view family) {
  std::vector<std::string_view> known;
  for (const Architecture& a : architectures()) {
    if (a.family == family) return a;
    known.push_back(a.family);
  }
  fail("'{}' is not a model family; known: {}", family, fmt::join(known, ", "));
}

std::string hf_classes() {
  std::vector<std::string_view> names;
  for (const Architecture& a : architectures()) names.push_back(a.hf_class);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::optional<Misfit> misfit(const Model& model) {
  const Architecture& a = find_architecture(model.family);
  for (const KeyRule& rule : key_rules)
    if (!rule.fits(a, model)) return Misfit{rule.key, rule.value(model), legal(rule, model)};
  return std::nullopt;
}

}  // namespace ztrain::config
