#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"
#include "config/architectures.hpp"
#include "config/hf/hf_config.hpp"
#include "config/hf/hf_json.hpp"
#include "files/file.hpp"

namespace ztrain::config {
namespace {

using nlohmann::json;

json rope_of(const Model& m) {
  if (m.rope_scaling != "llama3") return nullptr;
  return {{"rope_type", "llama3"},
          {"factor", m.rope_factor},
          {"low_freq_factor", m.rope_low_freq_factor},
          {"high_freq_factor", m.rope_high_freq_factor},
          {"original_max_position_embeddings", m.rope_original_max_position}};
}

/// Adds the keys that not all architectures have.
void add_own_keys(const Model& m, const Architecture& a, json& config) {
  if (a.attention_bias == Has::by_config) config["attention_bias"] = m.attention_bias;
  if (a.mlp_bias_key) config["mlp_bias"] = false;
  if (a.windows == Windows::none) return;
  const bool windows = m.sliding_window > 0;
  config["sliding_window"] = windows ? json(m.sliding_window) : json(nullptr);
  if (a.windows == Windows::all_layers) return;
  const std::int64_t full = windows ? m.full_attention_layers : m.num_hidden_layers;
  config["use_sliding_window"] = windows;
  config["max_window_layers"] = full;
  json types = json::array();
  for (std::int64_t layer = 0; layer < m.num_hidden_layers; ++layer)
    types.push_back(layer < full ? "full_attention" : "sliding_attention");
  config["layer_types"] = types;
}

/// Returns one id, a list of them, or null.
json ends_of(const Model& m) {
  if (m.ends.size() == 1) return m.ends.front();
  return m.ends.empty() ? json(nullptr) : json(m.ends);
}

/// Keeps what training does not change, from the model that the weights come from.
void keep(const Model& m, const Architecture& a, json& config) {
  const std::string path = hf_config_path(m.from);
  if (m.from.empty() || !file_exists(path)) return;
  const json original = read_hf_config(path);
  std::vector<const char*> keys{"max_position_embeddings"};
  for (const char* key : {"bos_token_id", ends_key, "pad_token_id"}) {
    keys.push_back(key);
    if (config[key].is_null()) config.erase(key);
  }
  // The key has no effect if no layer has a window.
  if (a.windows == Windows::later_layers && m.sliding_window == 0)
    keys.insert(keys.end(), {"sliding_window", "max_window_layers"});
  for (const char* key : keys)
    if (original.contains(key) && !(original[key].is_null() && config.contains(key)))
      config[key] = original[key];
}

}  // namespace

std::string hf_dtype(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "float64";
    case DType::f32:
      return "float32";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    default:
      fail("weights cannot be {}", name_of(dtype));
  }
}

std::string hf_config(const Model& m, DType dtype, std::int64_t max_positions) {
  const Architecture& a = find_architecture(m.family);
  if (const auto wrong = misfit(m))
    fail("{} = {}: such a model is no {}; legal: {}", wrong->key, wrong->value, a.hf_class, wrong->legal);
  json config{{"architectures", {a.hf_class}},
              {"model_type", a.model_type},
              {"hidden_act", "silu"},
              {"hidden_size", m.hidden_size},
              {"intermediate_size", m.intermediate_size},
              {"num_hidden_layers", m.num_hidden_layers},
              {"num_attention_heads", m.num_attention_heads},
              {"num_key_value_heads", m.num_key_value_heads},
              {"head_dim", m.head_dim},
              {"vocab_size", m.vocab_size},
              {"max_position_embeddings", max_positions},
              {"rms_norm_eps", m.rms_norm_eps},
              {"rope_theta", m.rope_theta},
              {"rope_scaling", rope_of(m)},
              {"tie_word_embeddings", m.tie_word_embeddings},
              {"attention_dropout", 0.0},
              {"initializer_range", m.initializer_range},
              {"bos_token_id", nullptr},
              {ends_key, ends_of(m)},
              {"pad_token_id", nullptr},
              {"torch_dtype", hf_dtype(dtype)},
              {"use_cache", true}};
  add_own_keys(m, a, config);
  keep(m, a, config);
  return json_text(config, 2) + "\n";
}

}  // namespace ztrain::config
