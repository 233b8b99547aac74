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

/// How an architecture normalises.
enum class NormKind : std::uint8_t {
  rms,           ///< RMSNorm, whose gain is the weight
  rms_one_plus,  ///< RMSNorm, whose gain is 1 + the weight
  layer          ///< LayerNorm, with a bias
};

/// What the blocks of an architecture compute beside what keys of [model] say. Names of modules are the last
/// parts of Hugging Face's; "": there is no such module.
struct BlockStyle {
  NormKind norm = NormKind::rms;
  std::string_view before_attention = "input_layernorm", after_attention = "",
                   before_mlp = "post_attention_layernorm", after_mlp = "";
  bool wide_qk_norm = false;  ///< model.qk_norm normalises all heads together, not each
  /// Activation of the feed-forward: silu, gelu_tanh, gelu (kernels/activation), or xielu, whose two
  /// parameters are trained.
  std::string_view activation = "silu";
  std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";
  bool interleaved_rope =
      false;  ///< pairs of neighbours are turned, not elements that are half a width apart
  bool scaled_embedding = false;   ///< embeddings are multiplied by the root of hidden_size
  bool learned_positions = false;  ///< a table of positions is added to embeddings; nothing is turned
};

/// A parameter that files of an architecture keep within another tensor. Rows of the table with one file
/// tensor name its parts, in their order along the dim of outputs.
struct FileTensor {
  std::string_view parameter;  ///< name, with * for the layer's number
  std::string_view tensor;     ///< name in files, with * for the same number
  bool transposed = false;     ///< the file has [inputs, outputs]
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
  BlockStyle style{};
  std::vector<FileTensor> files{};  ///< parameters that files keep under another name or form
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
/// Name of the table of learned positions.
inline constexpr const char* positions_weight = "model.embed_positions.weight";
/// Name of the embedding's weight, which a tied head uses too.
inline constexpr const char* embedding_weight = "model.embed_tokens.weight";

}  // namespace ztrain::config
