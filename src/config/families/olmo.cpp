// OLMo 2 and 3. OLMo Team, "2 OLMo 2 Furious", 2024. OLMoE. Muennighoff et al., "OLMoE", 2024.
#include "config/families/families.hpp"

namespace ztrain::config::families {
namespace {

constexpr BlockStyle olmo_style{.before_attention = "",
                                .after_attention = "post_attention_layernorm",
                                .before_mlp = "",
                                .after_mlp = "post_feedforward_layernorm",
                                .wide_qk_norm = true};

constexpr std::string_view olmo2 = "rms_norm_eps=1e-6 rope_theta=5e5",
                           olmo3 =
                               "sliding_window=4096 rope_scaling=\"yarn\" rope_factor=8 "
                               "rope_original_max_position=8192 max_position_embeddings=65536";

std::vector<ModelKey> olmo_keys(std::vector<ModelKey> own) {
  own.insert(own.end(),
             {silu, no_attention_dropout, attention_bias("false"), output_bias_too, qk_norm, eps("1e-5")});
  return own;
}

}  // namespace

std::vector<Architecture> olmo() {
  return {
      {.family = "olmo2",
       .hf_class = "Olmo2ForCausalLM",
       .model_type = "olmo2",
       .doc = "norms stand behind attention and the feed-forward alone; queries and keys are normalised over "
              "all heads together (OLMo 2).",
       .style = olmo_style,
       .keys = olmo_keys({}),
       .presets = {{"olmo2-1b", 2048, 8192, 16, 16, 16, 100352, olmo2},
                   {"olmo2-7b", 4096, 11008, 32, 32, 32, 100352, olmo2},
                   {"olmo2-13b", 5120, 13824, 40, 40, 40, 100352, olmo2},
                   {"olmo2-32b", 5120, 27648, 64, 40, 8, 100352, olmo2}}},
      {.family = "olmo3",
       .hf_class = "Olmo3ForCausalLM",
       .model_type = "olmo3",
       .doc = "olmo2, in which three of four layers have a window; wavelengths are stretched in the others "
              "alone (OLMo 3).",
       .style = olmo_style,
       .keys = olmo_keys({theta("500000.0"),
                          {.key = "model.rope_local_base_freq", .standard = "0", .role = KeyRole::own},
                          {.hf = "rope_parameters"},
                          own_window("4096"),
                          layer_types(R"(["sliding_attention", "sliding_attention", "sliding_attention",
                                     "full_attention"])")}),
       .presets = {{"olmo3-7b", 4096, 11008, 32, 32, 32, 100278, olmo2, olmo3},
                   {"olmo3-32b", 5120, 27648, 64, 40, 8, 100278, olmo2, olmo3}}},
      {.family = "olmoe",
       .hf_class = "OlmoeForCausalLM",
       .model_type = "olmoe",
       .doc =
           "llama, in which queries and keys are normalised as in olmo2, and the feed-forward is a mixture "
           "of experts (OLMoE).",
       .style = {.wide_qk_norm = true},
       .files = expert_files(),
       .keys = olmo_keys({must_say("clip_qkv", "null"), experts("num_experts", "64"), experts_per_token("8"),
                          width, same_expert_width, normalised_weights, balance("0.01")}),
       .presets = {{"olmoe-1b-7b", 2048, 1024, 16, 16, 16, 50304}}},
  };
}

}  // namespace ztrain::config::families
