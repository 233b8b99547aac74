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

/// Returns the rows that all architectures have.
std::vector<ModelKey> common_keys();
/// Returns the rows of architectures with a rotary embedding.
std::vector<ModelKey> rotary_keys();

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
/// Returns the row of the layers that have the window. `standard` is repeated.
constexpr ModelKey layer_types(const char* standard) {
  return {"model.layer_types", "layer_types", standard, KeyRole::own};
}

}  // namespace ztrain::config::families
