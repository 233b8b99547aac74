#include "config/hf/hf_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/plain_text.hpp"
#include "config/architectures.hpp"
#include "config/hf/hf_json.hpp"
#include "files/file.hpp"

namespace ztrain::config {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const Architecture& architecture_of(const Members& c) {
  const std::string only = "ztrain reads " + hf_classes();
  REQUIRE(c.has("architectures") && c.at("architectures").is_array(), "{}: architectures is missing; {}",
          c.where(), only);
  for (const Architecture& a : architectures())
    for (const auto& name : c.at("architectures"))
      if (name == a.hf_class) {
        const std::string type = c.string("model_type", std::string(a.model_type).c_str());
        REQUIRE(type == a.model_type,
                "{}: model_type = \"{}\" contradicts architectures = {}, whose is \"{}\"", c.where(),
                printable(type, most_quoted), c.text("architectures"), a.model_type);
        return a;
      }
  fail("{}: architectures = {}: not supported; {}", c.where(), c.text("architectures"), only);
}

/// Throws Error for what no family here computes.
void require_computable(const Members& c, const Architecture& a) {
  const std::string activation = c.string("hidden_act", "silu");
  REQUIRE(activation == "silu", "{}: hidden_act = \"{}\": not supported; ztrain's {} has silu", c.where(),
          printable(activation, most_quoted), a.family);
  REQUIRE(!c.boolean("mlp_bias", false),
          "{}: mlp_bias = true: not supported; ztrain's feed-forward layers have no biases", c.where());
  REQUIRE(a.attention_bias != Has::never || !c.boolean("attention_bias", false),
          "{}: attention_bias = true: not supported; {} has no biases", c.where(), a.hf_class);
  REQUIRE(c.number("attention_dropout", 0) == 0, "{}: attention_dropout = {}: not supported; ztrain has none",
          c.where(), c.text("attention_dropout"));
  REQUIRE(!c.has("quantization_config"),
          "{}: quantization_config: not supported; give the model's bf16, fp16 or fp32 weights", c.where());
}

std::string toml(bool value) {
  return value ? "true" : "false";
}
std::string toml(double value) {
  return fmt::format("{}", value);
}

/// Returns the key of the rotary embedding's scaling: rope_scaling, or rope_parameters in newer files.
const char* rope_key(const Members& c) {
  const bool older = c.has("rope_scaling"), newer = c.has("rope_parameters");
  REQUIRE(!older || !newer || c.at("rope_scaling") == c.at("rope_parameters"),
          "{}: rope_scaling and rope_parameters contradict each other", c.where());
  return older ? "rope_scaling" : newer ? "rope_parameters" : nullptr;
}

/// Reads the rotary embedding: rope_theta and rope_scaling, or both from rope_parameters as in newer files.
void add_rope(const Members& c, Settings& s) {
  const char* key = rope_key(c);
  REQUIRE(c.number("partial_rotary_factor", 1) == 1, "{}: partial_rotary_factor: not supported", c.where());
  double theta = c.number("rope_theta", 1e4);
  std::string type = "default";
  if (key != nullptr) {
    const Members rope = c.object(key);
    for (const auto& [name, value] : c.at(key).items())
      REQUIRE(!value.is_object(),
              "{}: {} is an object: rotary embeddings that differ by layer are not supported", rope.where(),
              name);
    theta = rope.number("rope_theta", theta);
    type = rope.string("rope_type", rope.string("type", "default").c_str());
    REQUIRE(type == "default" || type == "llama3",
            "{}: {} has type \"{}\": not supported; ztrain scales as llama3, or not at all", c.where(), key,
            printable(type, most_quoted));
    REQUIRE(rope.number("partial_rotary_factor", 1) == 1, "{}: partial_rotary_factor: not supported",
            rope.where());
    if (type == "llama3") {
      s.emplace_back("model.rope_factor", toml(rope.number("factor")));
      s.emplace_back("model.rope_low_freq_factor", toml(rope.number("low_freq_factor")));
      s.emplace_back("model.rope_high_freq_factor", toml(rope.number("high_freq_factor")));
      s.emplace_back("model.rope_original_max_position",
                     fmt::to_string(rope.integer("original_max_position_embeddings")));
    }
  }
  s.emplace_back("model.rope_theta", toml(theta));
  s.emplace_back("model.rope_scaling", type == "llama3" ? R"("llama3")" : R"("none")");
}

/// Returns sliding_window: a number, 0 for null, or the default if it is absent.
std::int64_t window_of(const Members& c) {
  if (!c.contains("sliding_window")) return standard_window;
  if (!c.has("sliding_window")) return 0;
  const std::int64_t window = c.integer("sliding_window");
  REQUIRE(window > 0, "{}: sliding_window = {}: must be positive, or null for none", c.where(), window);
  return window;
}

/// Returns whether a layer of layer_types has a window.
bool slides(const Members& c, const json& type) {
  REQUIRE(type == "full_attention" || type == "sliding_attention",
          "{}: layer_types holds {}: not supported; ztrain has full_attention and sliding_attention",
          c.where(), json_text(type).substr(0, 100));
  return type == "sliding_attention";
}

/// Returns how many first layers have no window by layer_types, if it is given. All later layers must have
/// one.
std::int64_t full_layers(const Members& c, std::int64_t layers, std::int64_t standard) {
  if (!c.has("layer_types")) return standard;
  const json& types = c.at("layer_types");
  REQUIRE(types.is_array() && static_cast<std::int64_t>(types.size()) == layers,
          "{}: layer_types must be a list of {} names, one for each layer", c.where(), layers);
  const auto first = std::find_if(types.begin(), types.end(), [&](const json& t) { return slides(c, t); });
  for (auto type = first; type != types.end(); ++type)
    REQUIRE(slides(c, *type),
            "{}: layer_types: layer {} is full_attention after layers with sliding_attention: not supported; "
            "only the first layers may be full (model.full_attention_layers)",
            c.where(), type - types.begin());
  return first - types.begin();
}

/// Reads sliding windows in the form that the architecture has.
void add_windows(const Members& c, const Architecture& a, std::int64_t layers, Settings& s) {
  std::int64_t window = 0, full = 0;
  if (a.windows == Windows::all_layers) window = window_of(c);
  if (a.windows == Windows::later_layers && c.boolean("use_sliding_window", false)) {
    window = window_of(c);
    full = std::min(layers, c.integer("max_window_layers", standard_full_layers));
    REQUIRE(full >= 0, "{}: max_window_layers = {}: must not be negative", c.where(), full);
  }
  const std::int64_t without = window > 0 ? full : layers, listed = full_layers(c, layers, without);
  // If max_window_layers and layer_types differ, transformers follows layer_types.
  REQUIRE(listed == without || (a.windows == Windows::later_layers && window > 0),
          "{}: layer_types asks for windows in {} of {} layers, but the model's other keys ({}) say {}",
          c.where(), layers - listed, layers, a.hf_class, layers - without);
  const bool some = listed < layers;
  s.emplace_back("model.sliding_window", fmt::to_string(some ? window : 0));
  s.emplace_back("model.full_attention_layers", fmt::to_string(some ? listed : 0));
}

/// Reads widths and numbers of heads.
void add_heads(const Members& c, const Architecture& a, Settings& s) {
  const std::int64_t hidden = c.integer("hidden_size"), heads = c.integer("num_attention_heads");
  const bool has_dim = c.has("head_dim") || a.standard_head_dim > 0;
  REQUIRE(hidden > 0 && heads > 0 && (has_dim || hidden % heads == 0),
          "{}: num_attention_heads ({}) does not divide hidden_size ({})", c.where(), heads, hidden);
  const bool silent = !c.contains("num_key_value_heads") && a.standard_kv_heads > 0;
  const auto kv_heads = c.integer("num_key_value_heads", silent ? a.standard_kv_heads : heads);
  const auto head_dim = c.integer("head_dim", a.standard_head_dim > 0 ? a.standard_head_dim : hidden / heads);
  REQUIRE(kv_heads > 0 && head_dim > 0, "{}: num_key_value_heads ({}) and head_dim ({}) must be positive",
          c.where(), kv_heads, head_dim);
  s.emplace_back("model.hidden_size", fmt::to_string(hidden));
  s.emplace_back("model.num_attention_heads", fmt::to_string(heads));
  s.emplace_back("model.num_key_value_heads", fmt::to_string(kv_heads));
  s.emplace_back("model.head_dim", fmt::to_string(head_dim));
}

/// Returns the file's object, or an object without members if there is no file.
json read_if_there(const fs::path& path) {
  return file_exists(path.string()) ? read_json(path.string()) : json::object();
}

}  // namespace

std::string hf_config_path(const std::string& folder) {
  return (fs::path(folder) / "config.json").string();
}

Settings hf_settings(const std::string& folder) {
  const std::string path = hf_config_path(folder);
  const json parsed = read_hf_config(path);
  const Members c(path, parsed);
  const Architecture& a = architecture_of(c);
  require_computable(c, a);
  const auto layers = c.integer("num_hidden_layers"), vocab = c.integer("vocab_size");
  REQUIRE(layers > 0 && vocab > 0, "{}: num_hidden_layers ({}) and vocab_size ({}) must be positive", path,
          layers, vocab);
  const bool bias = a.attention_bias == Has::always ||
                    (a.attention_bias == Has::by_config && c.boolean("attention_bias", false));
  Settings s{{"model.family", fmt::format("\"{}\"", a.family)},
             {"model.intermediate_size", fmt::to_string(c.integer("intermediate_size"))},
             {"model.num_hidden_layers", fmt::to_string(layers)},
             {"model.vocab_size", fmt::to_string(vocab)},
             {"model.rms_norm_eps", toml(c.number("rms_norm_eps", 1e-6))},
             {"model.initializer_range", toml(c.number("initializer_range", 0.02))},
             {"model.tie_word_embeddings", toml(c.boolean("tie_word_embeddings", false))},
             {"model.attention_bias", toml(bias)},
             {"model.attention_output_bias", toml(bias && a.output_bias)},
             {"model.qk_norm", toml(a.qk_norm)}};
  add_heads(c, a, s);
  add_windows(c, a, layers, s);
  add_rope(c, s);
  return s;
}

std::vector<std::int32_t> hf_eos(const std::string& folder) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const fs::path path = fs::path(folder) / name;
    const json parsed = read_if_there(path);
    auto found = Members(path.string(), parsed).tokens("eos_token_id");
    if (!found.empty()) return found;
  }
  return {};
}

std::vector<std::int32_t> hf_eos_if_valid(const std::string& folder) {
  try {
    return hf_eos(folder);
  } catch (const Error&) {
    return {};
  }
}

std::int64_t hf_positions(const std::string& folder) {
  const fs::path path = fs::path(folder) / "config.json";
  const json parsed = read_if_there(path);
  const Members config(path.string(), parsed);
  const std::int64_t older = config.integer("n_positions", 0);
  return std::max<std::int64_t>(config.integer("max_position_embeddings", older), 0);
}

}  // namespace ztrain::config
