#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"
#include "config/architectures.hpp"
#include "config/fields/model_keys.hpp"
#include "config/fields/value.hpp"
#include "config/hf/hf_config.hpp"
#include "config/hf/hf_json.hpp"
#include "config/hf/hf_keys.hpp"
#include "config/hf/reward_model.hpp"
#include "config/hf/special_tokens.hpp"
#include "files/file.hpp"

namespace ztrain::config {
namespace {

using nlohmann::json;

/// Returns the value of a row. Numbers are whole where transformers' are.
json value_of(const ModelKey& row, const Field& field, const Deck& deck) {
  const std::string text = render(field, deck);
  json value = json_of(field, deck);
  if (const double follows = derived(field.key, deck.model); text == "0" && follows != 0) value = follows;
  if (text == "0" && value == 0 && row.has_null()) return nullptr;
  const bool whole = std::string_view(row.standard).find_first_of(".e") == std::string_view::npos;
  if (value.is_number_float() && whole && row.has_standard() && std::trunc(value.get<double>()) == value)
    return value.get<std::int64_t>();
  return value;
}

/// Writes the keys that stand for themselves.
void write_keys(const Architecture& a, const Deck& deck, json& config) {
  for (const ModelKey& row : a.keys) {
    if (!row.in_file()) continue;
    if (row.in_deck())
      config[row.hf] = value_of(row, *find_field(row.key), deck);
    else if (row.role != KeyRole::free)
      config[row.hf] = parse_json(row.standard);
  }
}

/// Returns the longest sequence of the written model.
std::int64_t positions_of(const Model& m, std::int64_t max_positions) {
  // transformers takes the quotient of both lengths for the factor.
  if (m.rope_scaling == "longrope")
    return std::llround(m.rope_factor * static_cast<double>(m.rope_original_max_position));
  return m.max_position_embeddings > 0 ? m.max_position_embeddings : max_positions;
}

/// Keeps what training does not change, from the model that the weights come from.
void keep(const Model& m, const Architecture& a, json& config) {
  const std::string path = hf_config_path(m.from);
  if (m.from.empty() || !file_exists(path)) return write_special_tokens(m, nullptr, config);
  const json original = read_hf_config(path);
  write_special_tokens(m, &original, config);
  std::vector<const char*> keys{find_key(a, "model.max_position_embeddings")->hf};
  for (const ModelKey& row : a.keys)
    if (row.role == KeyRole::dropped) keys.push_back(row.hf);
  // The key has no effect if no layer has a window.
  if (find_hf(a, "max_window_layers") != nullptr && m.sliding_window == 0)
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

std::string hf_config(const Model& m, DType dtype, std::int64_t max_positions, HfHead head) {
  const Architecture& a = find_architecture(m.family);
  if (const auto wrong = misfit(m))
    fail("{} = {}: such a model is no {}; legal: {}", wrong->key, wrong->value, a.hf_class, wrong->legal);
  Deck deck;
  deck.model = m;
  deck.model.max_position_embeddings = positions_of(m, max_positions);
  json config{{"architectures", {a.hf_class}},
              {"model_type", a.model_type},
              {"torch_dtype", hf_dtype(dtype)},
              {"use_cache", true}};
  write_keys(a, deck, config);
  write_layers(a, deck.model, config);
  write_rope(a, deck, config);
  keep(m, a, config);
  if (head == HfHead::reward) write_reward_head(a, m, config);
  return json_text(config, 2) + "\n";
}

}  // namespace ztrain::config
