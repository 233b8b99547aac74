// GLM 4 in its two forms: that of 2024 (glm-4-9b), and the one with norms behind each half (GLM-4-0414).
#include "config/families/families.hpp"

namespace ztrain::config::families {
namespace {

constexpr std::string_view glm4_0414 = "head_dim=128 partial_rotary_factor=0.5";

Architecture as_glm(Architecture a) {
  a.style.interleaved_rope = true;
  a.files = {{"model.layers.*.mlp.gate_proj.weight", "model.layers.*.mlp.gate_up_proj.weight"},
             {"model.layers.*.mlp.up_proj.weight", "model.layers.*.mlp.gate_up_proj.weight"}};
  a.keys = {silu,
            no_attention_dropout,
            attention_bias("true"),
            kv_heads("2"),
            head_dim("128"),
            eps("1.5625e-07"),
            {"model.partial_rotary_factor", "partial_rotary_factor", "0.5", KeyRole::own}};
  return a;
}

}  // namespace

std::vector<Architecture> glm() {
  return {
      as_glm({.family = "glm",
              .hf_class = "GlmForCausalLM",
              .model_type = "glm",
              .doc = "llama, in which half of each head is rotated, in pairs of neighbours; queries, keys "
                     "and values may have biases (GLM-4-9B).",
              .presets = {{"glm4-9b-chat", 4096, 13696, 40, 32, 2, 151552, glm4_0414,
                           "attention_bias=true rms_norm_eps=1.5625e-07 rope_theta=5e6"}}}),
      as_glm({.family = "glm4",
              .hf_class = "Glm4ForCausalLM",
              .model_type = "glm4",
              .doc = "glm with norms before and behind attention and the feed-forward (GLM-4-0414).",
              .style = {.after_attention = "post_self_attn_layernorm", .after_mlp = "post_mlp_layernorm"},
              .presets = {{"glm4-9b", 4096, 13696, 40, 32, 2, 151552, glm4_0414, "attention_bias=false"},
                          {"glm4-32b", 6144, 23040, 61, 48, 2, 151552, glm4_0414, "attention_bias=false"}}}),
  };
}

}  // namespace ztrain::config::families
