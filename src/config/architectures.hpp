#pragma once
// Architectures of Hugging Face that ztrain has, as data: their names, keys, blocks, files and published
// sizes. The legal values of model.family and model.preset, their documentation, the checks of a deck, and
// config.json in and out come from here. src/model computes them. Rows are in config/families.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/deck.hpp"

namespace ztrain::config {

/// Values that a deck and a config.json may give to a key.
enum class KeyRole : std::uint8_t {
  free,           ///< any value; a deck that does not give it has the key's own default
  own,            ///< any value; a deck that does not give it has the row's default
  fixed,          ///< the row's default alone
  dropped,        ///< config.json may say any value, and ztrain trains without it (dropout)
  further_layers  ///< number of layers behind the last one, which predict further tokens: they are left out
};

/// A key of an architecture. Texts are JSON, which numbers, booleans and words share with TOML.
struct ModelKey {
  const char* key = "";       ///< key of the deck, "model. ..."; "": none
  const char* hf = "";        ///< name in config.json; "": that does not say it, or code of its own reads it
  const char* standard = "";  ///< value where config.json lacks the key; "": it must have it
  KeyRole role = KeyRole::free;
  const char* null = "";   ///< value that null stands for; "": null counts as absent
  const char* other = "";  ///< name in files of other versions of transformers, which is read too; "": none

  bool in_deck() const { return *key != '\0'; }
  bool in_file() const { return *hf != '\0'; }
  bool has_standard() const { return *standard != '\0'; }
  bool has_null() const { return *null != '\0'; }
  bool has_other() const { return *other != '\0'; }
};

/// A published model. Pairs such as `head_dim=128`, with spaces between them, are keys of [model].
struct ModelPreset {
  std::string_view name;
  std::int64_t hidden, intermediate, layers, heads, kv_heads, vocab;
  std::string_view shared = "", own = "";  ///< pairs; later ones win
};

/// How an architecture normalises.
enum class NormKind : std::uint8_t {
  rms,           ///< RMSNorm, whose gain is the weight
  rms_one_plus,  ///< RMSNorm, whose gain is 1 + the weight
  layer          ///< LayerNorm, with a bias
};

/// The computations of an architecture's blocks that no key of [model] chooses. Names of modules are the last
/// parts of Hugging Face's; "": there is no such module.
struct BlockStyle {
  NormKind norm = NormKind::rms;
  std::string_view before_attention = "input_layernorm", after_attention = "",
                   before_mlp = "post_attention_layernorm", after_mlp = "";
  bool attention_sinks = false;  ///< each head has a trained logit without a value (kernels/sinks/sinks.hpp)
  bool wide_qk_norm = false;     ///< model.qk_norm normalises all heads together, not each
  /// Activation of the feed-forward: silu, clamped_silu, gelu_tanh (kernels/activation), or xielu, whose
  /// two parameters are trained.
  std::string_view activation = "silu";
  std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";
  std::string_view router = "gate";     ///< scores the experts; has a bias if the feed-forward has biases
  std::string_view shared_expert = "";  ///< the expert that all tokens go to
  bool shared_expert_gate = false;      ///< a sigmoid of the input scales what the shared expert computes
  bool interleaved_rope =
      false;  ///< pairs of neighbours are turned, not elements that are half a width apart
  bool scaled_embedding = false;   ///< embeddings are multiplied by the root of hidden_size
  bool learned_positions = false;  ///< a table of positions is added to embeddings; nothing is turned
};

/// How files keep a parameter whose first dim is the experts of a layer.
enum class ExpertFiles : std::uint8_t {
  none,     ///< the parameter has no such dim
  stacked,  ///< one tensor has all experts
  apart     ///< each expert has a tensor of its own
};

/// Order of the outputs of several parameters that share a tensor.
enum class PartOrder : std::uint8_t {
  consecutive,  ///< all outputs of the first parameter, then all of the second
  interleaved   ///< the first output of each parameter, then the second of each
};

/// A form in which files of an architecture keep a parameter: renamed, transposed, fused with others. Rows
/// with one file tensor name its parts, in their order along the dim of outputs. Exports write the form of
/// a parameter's first row. Its other rows are forms that are read too.
struct FileTensor {
  std::string_view parameter;  ///< name, with * for the layer's number
  /// Name in files, with * for the same number. For experts apart, a second * is the expert's number; without
  /// one, all experts are copies of one matrix.
  std::string_view tensor;
  bool transposed = false;  ///< the file has [inputs, outputs], for each expert
  ExpertFiles experts = ExpertFiles::none;
  PartOrder order = PartOrder::consecutive;
};

/// A tensor of files that is no parameter, such as a causal mask. Reading only checks its `value`.
struct FileBuffer {
  std::string_view tensor;        ///< name in files, with * for the layer's number
  std::optional<double> value{};  ///< scalar that an export writes; none: an export writes no such tensor
};

struct Architecture {
  std::string_view family;                ///< model.family
  std::string_view hf_class, model_type;  ///< config.json's architectures and model_type
  std::string_view doc{};                 ///< one sentence, which the documentation prints after "family: "
  /// Family of dense models that a mixture of experts may start from (Komatsuzaki et al., "Sparse upcycling",
  /// 2022): each expert is a copy of their feed-forward, and all else but routers is theirs. "": none.
  std::string_view dense{};
  BlockStyle style{};
  std::vector<FileTensor> files{};    ///< parameters that files keep under another name or form
  std::vector<FileBuffer> buffers{};  ///< tensors of files that are no parameters
  /// Rows for what differs from other architectures. architectures() adds the common ones. A key of [model]
  /// without a row has its default.
  std::vector<ModelKey> keys{};
  std::vector<ModelPreset> presets{};
};

const std::vector<Architecture>& architectures();

/// Returns the architecture of a family. Throws Error naming the known ones.
const Architecture& find_architecture(std::string_view family);

/// Returns "LlamaForCausalLM, MistralForCausalLM, ...".
std::string hf_classes();
/// Returns the families that have an Architecture::dense, with it: "mixtral: mistral, ...".
std::string upcycled_families();

/// Name of the head's weight in Hugging Face models. A model whose head is tied to the embedding has no such
/// weight.
inline constexpr const char* head_weight = "lm_head.weight";
/// Name of the table of learned positions.
inline constexpr const char* positions_weight = "model.embed_positions.weight";
/// End of the name of a bias that takes part in the choice of experts alone. It is fp32 in every file.
inline constexpr std::string_view choice_bias = ".e_score_correction_bias";
/// Name of the embedding's weight, which a tied head uses too.
inline constexpr const char* embedding_weight = "model.embed_tokens.weight";

}  // namespace ztrain::config
