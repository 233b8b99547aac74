#include "config/families/families.hpp"

namespace ztrain::config::families {

std::vector<Architecture> smollm() {
  return {
      {.family = "smollm3",
       .hf_class = "SmolLM3ForCausalLM",
       .model_type = "smollm3",
       .doc = "llama, in which every fourth layer has no rotary embedding (SmolLM 3).",
       .keys = {silu,
                no_attention_dropout,
                attention_bias("false"),
                output_bias_too,
                must_say("mlp_bias", "false"),
                kv_heads("4"),
                theta("2000000.0"),
                {"model.tie_word_embeddings", "tie_word_embeddings", "true", KeyRole::own},
                window("0"),
                {.hf = "use_sliding_window", .standard = "false"},
                {"model.layer_types", "layer_types", "[]"},
                {"model.no_rope_layers", "no_rope_layers", "[1, 1, 1, 0]", KeyRole::own},
                {.hf = "no_rope_layer_interval"}},
       .presets = {{"smollm3-3b", 2048, 11008, 36, 16, 4, 128256,
                    "rms_norm_eps=1e-6 rope_theta=5e6 tie_word_embeddings=true"}}},
  };
}

}  // namespace ztrain::config::families
