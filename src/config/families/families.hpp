#pragma once
// Internal to config. Rows of the table of architectures, by maker, and what they share.

#include <vector>

#include "config/architectures.hpp"

namespace ztrain::config::families {

// Each returns the architectures of one maker.
std::vector<Architecture> llama();
std::vector<Architecture> mistral();
std::vector<Architecture> qwen();
std::vector<Architecture> gemma();
std::vector<Architecture> phi();
std::vector<Architecture> olmo();
std::vector<Architecture> smollm();
std::vector<Architecture> glm();
std::vector<Architecture> granite();
std::vector<Architecture> apertus();
std::vector<Architecture> starcoder();
std::vector<Architecture> gpt2();
std::vector<Architecture> gpt_oss();
std::vector<Architecture> deepseek();

/// Returns the rows that all architectures have.
std::vector<ModelKey> common_keys();
/// Returns the rows of architectures with a rotary embedding.
std::vector<ModelKey> rotary_keys();

/// Each returns the rows of experts for Architecture::files. Hub files of Qwen, OLMoE and DeepSeek have a
/// tensor for each expert, and so have those of Mixtral under other names. Hub files of gpt-oss have all
/// experts in one tensor, whose columns are in turn those of gate and up. What transformers 5 and MXFP4 files
/// have is read too.
std::vector<FileTensor> expert_files();
std::vector<FileTensor> mixtral_expert_files();
std::vector<FileTensor> gpt_oss_expert_files();

/// Returns the row of a key that has one value, which config.json does not say.
constexpr ModelKey always(const char* key, const char* value) {
  return {.key = key, .standard = value, .role = KeyRole::fixed};
}
/// Returns the row of a key of config.json that has one legal value, and that no deck has.
constexpr ModelKey must_say(const char* hf, const char* value) {
  return {.hf = hf, .standard = value, .role = KeyRole::fixed};
}
/// Returns the row of a share of elements that config.json drops in training.
constexpr ModelKey dropped(const char* hf) {
  return {.hf = hf, .standard = "0.0", .role = KeyRole::dropped};
}

inline constexpr ModelKey silu = must_say("hidden_act", R"("silu")");
inline constexpr ModelKey no_attention_dropout = must_say("attention_dropout", "0.0");

// Rows of keys that several architectures have.
constexpr ModelKey attention_bias(const char* standard) {
  return {"model.attention_bias", "attention_bias", standard, KeyRole::own};
}
inline constexpr ModelKey output_bias_too{"model.attention_output_bias", "attention_bias", "false"};
inline constexpr ModelKey qk_norm = always("model.qk_norm", "true");
constexpr ModelKey eps(const char* standard) {
  return {"model.rms_norm_eps", "rms_norm_eps", standard};
}
constexpr ModelKey kv_heads(const char* standard) {
  return {"model.num_key_value_heads", "num_key_value_heads", standard, KeyRole::free, "0"};
}
constexpr ModelKey head_dim(const char* standard) {
  return {"model.head_dim", "head_dim", standard};
}
constexpr ModelKey theta(const char* standard) {
  return {"model.rope_theta", "rope_theta", standard};
}
/// Returns the row of a window that a deck has only if it gives one.
constexpr ModelKey window(const char* standard) {
  return {"model.sliding_window", "sliding_window", standard, KeyRole::free, "0"};
}
/// Returns the row of a window that a deck has too if it does not give one.
constexpr ModelKey own_window(const char* standard) {
  return {"model.sliding_window", "sliding_window", standard, KeyRole::own, "0"};
}
// Rows of keys of architectures with experts.
constexpr ModelKey experts(const char* hf, const char* standard, const char* other = "") {
  return {"model.num_experts", hf, standard, KeyRole::own, "", other};
}
constexpr ModelKey experts_per_token(const char* standard) {
  return {"model.num_experts_per_tok", "num_experts_per_tok", standard, KeyRole::own};
}
constexpr ModelKey expert_width(const char* standard) {
  return {"model.moe_intermediate_size", "moe_intermediate_size", standard, KeyRole::own};
}
/// The width of experts is the key of the feed-forward's, which a deck may give under that name.
inline constexpr ModelKey width{"model.intermediate_size", "intermediate_size"},
    same_expert_width{"model.moe_intermediate_size", "intermediate_size"};
inline constexpr ModelKey normalised_weights{"model.norm_topk_prob", "norm_topk_prob", "false"};
constexpr ModelKey balance(const char* standard) {
  return {"model.router_aux_loss_coef", "router_aux_loss_coef", standard, KeyRole::own};
}
inline constexpr ModelKey sparse_step{"model.decoder_sparse_step", "decoder_sparse_step", "1"},
    dense_layers{"model.mlp_only_layers", "mlp_only_layers", "[]", KeyRole::free, "[]"};

/// Returns the row of the layers that have the window. `standard` is repeated.
constexpr ModelKey layer_types(const char* standard) {
  return {"model.layer_types", "layer_types", standard, KeyRole::own};
}

}  // namespace ztrain::config::families
