#include "config/families/families.hpp"

namespace ztrain::config::families {
namespace {

constexpr std::string_view qwen2 = "rope_theta=1e6 rms_norm_eps=1e-6",
                           qwen3 = "rope_theta=1e6 rms_norm_eps=1e-6 head_dim=128",
                           tied = "tie_word_embeddings=true";

/// Which layers have a window: those behind the first ones, or those that layer_types names.
std::vector<ModelKey> with_windows(std::vector<ModelKey> keys) {
  keys.insert(keys.end(), {silu,
                           no_attention_dropout,
                           kv_heads("32"),
                           window("4096"),
                           {.hf = "use_sliding_window", .standard = "false"},
                           {"model.full_attention_layers", "max_window_layers", "28"},
                           {"model.layer_types", "layer_types", "[]"}});
  return keys;
}

}  // namespace

std::vector<Architecture> qwen() {
  return {
      {.family = "qwen2",
       .hf_class = "Qwen2ForCausalLM",
       .model_type = "qwen2",
       .doc = "queries, keys and values always have biases; all layers but the first may have a window (Qwen "
              "2, 2.5).",
       .keys = with_windows({always("model.attention_bias", "true")}),
       .presets = {{"qwen2.5-0.5b", 896, 4864, 24, 14, 2, 151936, qwen2, tied},
                   {"qwen2.5-1.5b", 1536, 8960, 28, 12, 2, 151936, qwen2, tied},
                   {"qwen2.5-3b", 2048, 11008, 36, 16, 2, 151936, qwen2, tied},
                   {"qwen2.5-7b", 3584, 18944, 28, 28, 4, 152064, qwen2},
                   {"qwen2.5-14b", 5120, 13824, 48, 40, 8, 152064, qwen2, "rms_norm_eps=1e-5"},
                   {"qwen2.5-32b", 5120, 27648, 64, 40, 8, 152064, qwen2, "rms_norm_eps=1e-5"},
                   {"qwen2.5-72b", 8192, 29568, 80, 64, 8, 152064, qwen2, "rms_norm_eps=1e-5"}}},
      {.family = "qwen3",
       .hf_class = "Qwen3ForCausalLM",
       .model_type = "qwen3",
       .doc = "each head of queries and keys is normalised; biases as llama, windows as qwen2 (Qwen 3, "
              "dense).",
       .keys = with_windows({attention_bias("false"), output_bias_too, qk_norm, head_dim("128")}),
       .presets = {{"qwen3-0.6b", 1024, 3072, 28, 16, 8, 151936, qwen3, tied},
                   {"qwen3-1.7b", 2048, 6144, 28, 16, 8, 151936, qwen3, tied},
                   {"qwen3-4b", 2560, 9728, 36, 32, 8, 151936, qwen3, tied},
                   {"qwen3-8b", 4096, 12288, 36, 32, 8, 151936, qwen3},
                   {"qwen3-14b", 5120, 17408, 40, 40, 8, 151936, qwen3},
                   {"qwen3-32b", 5120, 25600, 64, 64, 8, 151936, qwen3}}},
  };
}

}  // namespace ztrain::config::families
