#include "config/hf_config.hpp"

#include <fmt/ranges.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace ztrain::config {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t largest_config = 1 << 20;  ///< bytes; real ones are about a thousand
constexpr const char* architecture = "LlamaForCausalLM";

/// The members of one JSON object, with messages that name file and key. A null counts as absent.
class Members {
 public:
  Members(std::string where, const json& object) : where_(std::move(where)), object_(object) {}

  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }

  std::int64_t integer(const char* key) const {
    REQUIRE(has(key), "{}: {} is missing", where_, key);
    REQUIRE(object_.at(key).is_number_integer(), "{}: {} = {}: must be a whole number", where_, key,
            text(key));
    return object_.at(key).get<std::int64_t>();
  }
  std::int64_t integer(const char* key, std::int64_t standard) const {
    return has(key) ? integer(key) : standard;
  }
  double number(const char* key, double standard) const {
    if (!has(key)) return standard;
    REQUIRE(object_.at(key).is_number(), "{}: {} = {}: must be a number", where_, key, text(key));
    return object_.at(key).get<double>();
  }
  double number(const char* key) const {
    REQUIRE(has(key), "{}: {} is missing", where_, key);
    return number(key, 0);
  }
  bool boolean(const char* key, bool standard) const {
    if (!has(key)) return standard;
    REQUIRE(object_.at(key).is_boolean(), "{}: {} = {}: must be true or false", where_, key, text(key));
    return object_.at(key).get<bool>();
  }
  std::string string(const char* key, const char* standard) const {
    if (!has(key)) return standard;
    REQUIRE(object_.at(key).is_string(), "{}: {} = {}: must be a string", where_, key, text(key));
    return object_.at(key).get<std::string>();
  }
  Members object(const char* key) const {
    REQUIRE(object_.at(key).is_object(), "{}: {} = {}: must be an object", where_, key, text(key));
    return {fmt::format("{}: {}", where_, key), object_.at(key)};
  }
  const json& at(const char* key) const { return object_.at(key); }
  std::string text(const char* key) const { return object_.at(key).dump().substr(0, 100); }
  const std::string& where() const { return where_; }

 private:
  std::string where_;
  const json& object_;
};

json read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good() && fs::is_regular_file(path),
          "model.from: cannot read '{}': no such file, or no permission; give a folder with config.json and "
          "safetensors files",
          path);
  REQUIRE(fs::file_size(path) <= static_cast<std::uintmax_t>(largest_config),
          "{}: has {} bytes; no config.json of a model is above {}", path, fs::file_size(path),
          largest_config);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto shallow = [&](int depth, json::parse_event_t, json&) {
    REQUIRE(depth <= 16, "{}: is nested more than 16 deep", path);
    return true;
  };
  try {
    json parsed = json::parse(text, shallow);
    REQUIRE(parsed.is_object(), "{}: is not a JSON object", path);
    return parsed;
  } catch (const json::exception& error) {
    fail("{}: not valid JSON: {}", path, error.what());
  }
}

void require_llama(const Members& c) {
  constexpr const char* only =
      "ztrain reads LlamaForCausalLM (Llama 2, 3, 3.1, 3.2 and models of their form)";
  REQUIRE(c.has("architectures") && c.at("architectures").is_array(), "{}: architectures is missing; {}",
          c.where(), only);
  bool found = false;
  for (const auto& name : c.at("architectures")) found = found || name == architecture;
  REQUIRE(found, "{}: architectures = {}: not supported; {}", c.where(), c.text("architectures"), only);
  const std::string activation = c.string("hidden_act", "silu");
  REQUIRE(activation == "silu", "{}: hidden_act = \"{}\": not supported; ztrain's Llama has silu", c.where(),
          activation);
  REQUIRE(!c.boolean("mlp_bias", false),
          "{}: mlp_bias = true: not supported; ztrain's feed-forward layers have no biases", c.where());
  REQUIRE(!c.boolean("attention_bias", false),
          "{}: attention_bias = true: not supported; such models have a bias on o_proj, which ztrain's "
          "attention (biases on q, k and v at most) has not",
          c.where());
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

/// Rotary embedding: rope_theta and rope_scaling, or both in rope_parameters as newer files have it.
void add_rope(const Members& c, Settings& s) {
  const char* key = c.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  double theta = c.number("rope_theta", 1e4);
  std::string type = "default";
  if (c.has(key)) {
    const Members rope = c.object(key);
    theta = rope.number("rope_theta", theta);
    type = rope.string("rope_type", rope.string("type", "default").c_str());
    REQUIRE(type == "default" || type == "llama3",
            "{}: {} has type \"{}\": not supported; ztrain scales as llama3, or not at all", c.where(), key,
            type);
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

}  // namespace

std::string hf_config_path(const std::string& folder) {
  return (fs::path(folder) / "config.json").string();
}

Settings hf_settings(const std::string& folder) {
  const std::string path = hf_config_path(folder);
  const json parsed = read(path);
  const Members c(path, parsed);
  require_llama(c);
  const std::int64_t hidden = c.integer("hidden_size"), heads = c.integer("num_attention_heads");
  REQUIRE(hidden > 0 && heads > 0 && (c.has("head_dim") || hidden % heads == 0),
          "{}: num_attention_heads ({}) does not divide hidden_size ({})", path, heads, hidden);
  const auto kv_heads = c.integer("num_key_value_heads", heads);
  const auto head_dim = c.has("head_dim") ? c.integer("head_dim") : hidden / heads;
  const auto vocab = c.integer("vocab_size");
  REQUIRE(kv_heads > 0 && head_dim > 0 && vocab > 0,
          "{}: num_key_value_heads ({}), head_dim ({}) and vocab_size ({}) must be positive", path, kv_heads,
          head_dim, vocab);
  Settings s{{"model.hidden_size", fmt::to_string(hidden)},
             {"model.intermediate_size", fmt::to_string(c.integer("intermediate_size"))},
             {"model.num_hidden_layers", fmt::to_string(c.integer("num_hidden_layers"))},
             {"model.num_attention_heads", fmt::to_string(heads)},
             {"model.num_key_value_heads", fmt::to_string(kv_heads)},
             {"model.head_dim", fmt::to_string(head_dim)},
             {"model.vocab_size", fmt::to_string(vocab)},
             {"model.rms_norm_eps", toml(c.number("rms_norm_eps", 1e-6))},
             {"model.initializer_range", toml(c.number("initializer_range", 0.02))},
             {"model.tie_word_embeddings", toml(c.boolean("tie_word_embeddings", false))},
             {"model.attention_bias", toml(false)}};
  add_rope(c, s);
  return s;
}

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
  REQUIRE(
      !m.attention_bias,
      "model.attention_bias: a model with biases on q, k and v alone is no {}, which has one on o_proj too",
      architecture);
  json rope = nullptr;
  if (m.rope_scaling == "llama3")
    rope = {{"rope_type", "llama3"},
            {"factor", m.rope_factor},
            {"low_freq_factor", m.rope_low_freq_factor},
            {"high_freq_factor", m.rope_high_freq_factor},
            {"original_max_position_embeddings", m.rope_original_max_position}};
  json config{{"architectures", {architecture}},
              {"model_type", "llama"},
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
              {"rope_scaling", rope},
              {"tie_word_embeddings", m.tie_word_embeddings},
              {"attention_bias", false},
              {"mlp_bias", false},
              {"attention_dropout", 0.0},
              {"initializer_range", m.initializer_range},
              {"torch_dtype", hf_dtype(dtype)},
              {"use_cache", true}};
  if (!m.from.empty() && fs::is_regular_file(hf_config_path(m.from))) {
    const json original = read(hf_config_path(m.from));
    for (const char* key : {"max_position_embeddings", "bos_token_id", "eos_token_id", "pad_token_id"})
      if (original.contains(key)) config[key] = original[key];
  }
  return config.dump(2) + "\n";
}

}  // namespace ztrain::config
