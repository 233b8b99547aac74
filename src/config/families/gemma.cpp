// Gemma 2 and the text models of Gemma 3. Gemma Team, reports of 2024 and 2025.
#include "config/families/families.hpp"

namespace ztrain::config::families {
namespace {

constexpr BlockStyle gemma_style{.norm = NormKind::rms_one_plus,
                                 .after_attention = "post_attention_layernorm",
                                 .before_mlp = "pre_feedforward_layernorm",
                                 .after_mlp = "post_feedforward_layernorm",
                                 .activation = "gelu_tanh",
                                 .scaled_embedding = true};

constexpr std::string_view gemma2 = "rms_norm_eps=1e-6 sliding_window=4096 tie_word_embeddings=true",
                           gemma3 = "rms_norm_eps=1e-6 rope_theta=1e6 tie_word_embeddings=true";

std::vector<ModelKey> gemma_keys(std::vector<ModelKey> own) {
  own.insert(own.end(), {must_say("hidden_activation", R"("gelu_pytorch_tanh")"),
                         must_say("hidden_act", R"("gelu_pytorch_tanh")"),
                         must_say("use_bidirectional_attention", "false"),
                         no_attention_dropout,
                         attention_bias("false"),
                         output_bias_too,
                         kv_heads("4"),
                         head_dim("256"),
                         own_window("4096"),
                         {"model.tie_word_embeddings", "tie_word_embeddings", "true", KeyRole::own},
                         {"model.query_pre_attn_scalar", "query_pre_attn_scalar", "256"}});
  return own;
}

}  // namespace

std::vector<Architecture> gemma() {
  return {
      {.family = "gemma2",
       .hf_class = "Gemma2ForCausalLM",
       .model_type = "gemma2",
       .doc = "RMSNorm by 1 + weight before and after attention and the feed-forward, a gate of GELU, "
              "embeddings scaled by the root of their width; every other layer has a window, scores and "
              "logits are capped (Gemma 2).",
       .style = gemma_style,
       .keys = gemma_keys(
           {layer_types(R"(["sliding_attention", "full_attention"])"),
            {"model.attn_logit_softcapping", "attn_logit_softcapping", "50.0", KeyRole::own, "0"},
            {"model.final_logit_softcapping", "final_logit_softcapping", "30.0", KeyRole::own, "0"}}),
       .presets = {{"gemma2-2b", 2304, 9216, 26, 8, 4, 256000, gemma2,
                    "head_dim=256 query_pre_attn_scalar=256"},
                   {"gemma2-9b", 3584, 14336, 42, 16, 8, 256000, gemma2,
                    "head_dim=256 query_pre_attn_scalar=256"},
                   {"gemma2-27b", 4608, 36864, 46, 32, 16, 256000, gemma2,
                    "head_dim=128 query_pre_attn_scalar=144"}}},
      {.family = "gemma3",
       .hf_class = "Gemma3ForCausalLM",
       .model_type = "gemma3_text",
       .doc = "gemma2 without caps, each head of queries and keys normalised; five of six layers have a "
              "window, and a rotary embedding of their own (Gemma 3, text).",
       .style = gemma_style,
       .keys = gemma_keys(
           {qk_norm,
            theta("1000000.0"),
            {"model.rope_local_base_freq", "rope_local_base_freq", "10000.0", KeyRole::own},
            {.hf = "rope_parameters"},
            layer_types(R"(["sliding_attention", "sliding_attention", "sliding_attention",
                                     "sliding_attention", "sliding_attention", "full_attention"])"),
            {.hf = "sliding_window_pattern"},
            {"model.attn_logit_softcapping", "attn_logit_softcapping", "0.0", KeyRole::free, "0"},
            {"model.final_logit_softcapping", "final_logit_softcapping", "0.0", KeyRole::free, "0"}}),
       .presets = {{"gemma3-270m", 640, 2048, 18, 4, 1, 262144, gemma3,
                    "head_dim=256 query_pre_attn_scalar=256 sliding_window=512"},
                   {"gemma3-1b", 1152, 6912, 26, 4, 1, 262144, gemma3,
                    "head_dim=256 query_pre_attn_scalar=256 sliding_window=512"},
                   {"gemma3-4b", 2560, 10240, 34, 8, 4, 262208, gemma3,
                    "head_dim=256 query_pre_attn_scalar=256 sliding_window=1024 rope_scaling=\"linear\" "
                    "rope_factor=8"},
                   {"gemma3-12b", 3840, 15360, 48, 16, 8, 262208, gemma3,
                    "head_dim=256 query_pre_attn_scalar=256 sliding_window=1024 rope_scaling=\"linear\" "
                    "rope_factor=8"},
                   {"gemma3-27b", 5376, 21504, 62, 32, 16, 262208, gemma3,
                    "head_dim=128 query_pre_attn_scalar=168 sliding_window=1024 rope_scaling=\"linear\" "
                    "rope_factor=8"}}},
  };
}

}  // namespace ztrain::config::families
