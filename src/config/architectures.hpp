#pragma once
// Architectures of Hugging Face that ztrain has, as data: their names and legal dims. The legal values of
// model.family, their documentation, the checks of a deck, and config.json in and out come from here.
// src/model computes them.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/deck.hpp"

namespace ztrain::config {

/// Whether models of an architecture have a feature.
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
  Has attention_bias = Has::never;        ///< biases of queries, keys and values
  bool output_bias = false;               ///< with those biases the output projection has one too
  bool mlp_bias_key = false;              ///< config.json says mlp_bias (which must be false)
  bool qk_norm = false;
  Windows windows = Windows::none;
  // Defaults of transformers for keys that config.json lacks.
  std::int64_t standard_kv_heads = 0;  ///< 0: num_attention_heads
  std::int64_t standard_head_dim = 0;  ///< 0: hidden_size / num_attention_heads
  std::string_view doc{};              ///< one sentence, which the documentation prints after "family: "
};

/// Defaults of transformers for the window, and for the first layer that has it, if config.json lacks them.
inline constexpr std::int64_t standard_window = 4096, standard_full_layers = 28;

const std::vector<Architecture>& architectures();

/// Returns the architecture of a family. Throws Error naming the known ones.
const Architecture& find_architecture(std::string_view family);

/// Returns "LlamaForCausalLM, MistralForCausalLM, ...".
std::string hf_classes();

/// A key of [model] whose value its family does not have.
struct Misfit {
  const char* key;
  std::string value;
  std::string legal;  ///< legal values for the family, and other families that have the value
};

/// Returns the first misfit, or nothing.
std::optional<Misfit> misfit(const Model& model);

/// Name of the head's weight in Hugging Face models. A model whose head is tied to the embedding has no such
/// weight.
inline constexpr const char* head_weight = "lm_head.weight";
/// Name of the embedding's weight, which a tied head uses too.
inline constexpr const char* embedding_weight = "model.embed_tokens.weight";

}  // namespace ztrain::config
