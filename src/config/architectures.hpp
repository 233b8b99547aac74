#pragma once
// Architectures of Hugging Face that ztrain has, as data: what they are called and which dims they may have.
// The legal values of model.family, their documentation, the checks of a deck, and config.json in and out
// come from here. What they compute is src/model's.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/deck.hpp"

namespace ztrain::config {

/// Whether the models of an architecture have something.
enum class Has : std::uint8_t { never, by_config, always };

/// Which layers of an architecture may have a sliding window.
enum class Windows : std::uint8_t {
  none,
  all_layers,   ///< config.json has sliding_window, which is null for none
  later_layers  ///< config.json has use_sliding_window, sliding_window, max_window_layers and layer_types
};

struct Architecture {
  std::string_view family;                ///< model.family
  std::string_view hf_class, model_type;  ///< config.json's architectures and model_type
  Has attention_bias = Has::never;        ///< of queries, keys and values
  bool output_bias = false;               ///< where these have biases, the output projection has one too
  bool mlp_bias_key = false;              ///< config.json says mlp_bias (which must be false)
  bool qk_norm = false;
  Windows windows = Windows::none;
  // What transformers takes where config.json is silent.
  std::int64_t standard_kv_heads = 0;  ///< 0: num_attention_heads
  std::int64_t standard_head_dim = 0;  ///< 0: hidden_size / num_attention_heads
  std::string_view doc{};              ///< one sentence, as the documentation continues "family: "
};

/// What transformers takes for the window and for the first layer that has it, where config.json is silent.
inline constexpr std::int64_t standard_window = 4096, standard_full_layers = 28;

const std::vector<Architecture>& architectures();

/// By family; throws Error naming the known ones.
const Architecture& find_architecture(std::string_view family);

/// "LlamaForCausalLM, MistralForCausalLM, ..."
std::string hf_classes();

/// A key of [model] whose value its family does not have.
struct Misfit {
  const char* key;
  std::string value;
  std::string legal;  ///< for the family, and which other families have the value
};

/// The first one, or nothing.
std::optional<Misfit> misfit(const Model& model);

}  // namespace ztrain::config
