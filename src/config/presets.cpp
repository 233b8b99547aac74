#include "config/presets.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdint>

namespace ztrain::config {
namespace {

struct ModelRow {
  const char* name;
  std::int64_t hidden, intermediate, layers, heads, kv_heads, vocab;
  double theta;
  double rope_factor;  ///< 0: no scaling, otherwise llama3's with this factor
  bool tied;
};

// Dims as in each model's published Hugging Face config.json.
constexpr std::array model_rows{
    ModelRow{"smoke", 64, 176, 2, 4, 2, 257, 1e4, 0, false},
    ModelRow{"100m", 768, 2048, 12, 12, 12, 32000, 1e4, 0, false},
    ModelRow{"tinyllama-1.1b", 2048, 5632, 22, 32, 4, 32000, 1e4, 0, false},
    ModelRow{"llama2-7b", 4096, 11008, 32, 32, 32, 32000, 1e4, 0, false},
    ModelRow{"llama2-13b", 5120, 13824, 40, 40, 40, 32000, 1e4, 0, false},
    ModelRow{"llama2-70b", 8192, 28672, 80, 64, 8, 32000, 1e4, 0, false},
    ModelRow{"llama3-8b", 4096, 14336, 32, 32, 8, 128256, 5e5, 0, false},
    ModelRow{"llama3-70b", 8192, 28672, 80, 64, 8, 128256, 5e5, 0, false},
    ModelRow{"llama3.1-8b", 4096, 14336, 32, 32, 8, 128256, 5e5, 8, false},
    ModelRow{"llama3.1-70b", 8192, 28672, 80, 64, 8, 128256, 5e5, 8, false},
    ModelRow{"llama3.1-405b", 16384, 53248, 126, 128, 8, 128256, 5e5, 8, false},
    ModelRow{"llama3.2-1b", 2048, 8192, 16, 32, 8, 128256, 5e5, 32, true},
    ModelRow{"llama3.2-3b", 3072, 8192, 28, 24, 8, 128256, 5e5, 32, true},
};

struct PrecisionRow {
  const char *name, *parameters, *gradients, *reduce, *master, *moments;
};
constexpr std::array precision_rows{
    PrecisionRow{"bf16", "bf16", "fp32", "fp32", "fp32", "fp32"},
    PrecisionRow{"fp32", "fp32", "fp32", "fp32", "fp32", "fp32"},
    PrecisionRow{"fp64", "fp64", "fp64", "fp64", "fp64", "fp64"},
};

}  // namespace

std::vector<std::string> model_preset_names() {
  std::vector<std::string> names{"custom"};
  for (const auto& row : model_rows) names.emplace_back(row.name);
  return names;
}

Settings model_preset(std::string_view name) {
  for (const auto& row : model_rows) {
    if (name != row.name) continue;
    Settings s{{"model.hidden_size", fmt::to_string(row.hidden)},
               {"model.intermediate_size", fmt::to_string(row.intermediate)},
               {"model.num_hidden_layers", fmt::to_string(row.layers)},
               {"model.num_attention_heads", fmt::to_string(row.heads)},
               {"model.num_key_value_heads", fmt::to_string(row.kv_heads)},
               {"model.vocab_size", fmt::to_string(row.vocab)},
               {"model.rms_norm_eps", "1e-5"},
               {"model.rope_theta", fmt::to_string(row.theta)},
               {"model.tie_word_embeddings", row.tied ? "true" : "false"}};
    if (row.rope_factor > 0) {
      s.insert(s.end(), {{"model.rope_scaling", "\"llama3\""},
                         {"model.rope_factor", fmt::to_string(row.rope_factor)},
                         {"model.rope_low_freq_factor", "1"},
                         {"model.rope_high_freq_factor", "4"},
                         {"model.rope_original_max_position", "8192"}});
    }
    return s;
  }
  return {};
}

std::vector<std::string> precision_preset_names() {
  std::vector<std::string> names;
  for (const auto& row : precision_rows) names.emplace_back(row.name);
  return names;
}

Settings precision_preset(std::string_view name) {
  for (const auto& row : precision_rows) {
    if (name != row.name) continue;
    const auto quoted = [](const char* dtype) { return fmt::format("\"{}\"", dtype); };
    return {{"precision.parameters", quoted(row.parameters)},
            {"precision.gradients", quoted(row.gradients)},
            {"precision.reduce", quoted(row.reduce)},
            {"precision.master", quoted(row.master)},
            {"precision.moments", quoted(row.moments)}};
  }
  return {};
}

}  // namespace ztrain::config
