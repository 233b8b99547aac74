#include "config/families/families.hpp"

namespace ztrain::config::families {

std::vector<Architecture> granite() {
  return {
      {.family = "granite",
       .hf_class = "GraniteForCausalLM",
       .model_type = "granite",
       .doc = "llama, in which embeddings, scores, what joins the residual stream, and logits are multiplied "
              "by numbers of their own (Granite 3).",
       .keys = {silu,
                dropped("attention_dropout"),
                attention_bias("false"),
                output_bias_too,
                must_say("mlp_bias", "false"),
                {"model.embedding_multiplier", "embedding_multiplier", "1.0"},
                {"model.attention_multiplier", "attention_multiplier", "1.0"},
                {"model.residual_multiplier", "residual_multiplier", "1.0"},
                {"model.logits_scaling", "logits_scaling", "1.0"}},
       .presets =
           {{"granite3.3-8b", 4096, 12800, 40, 32, 8, 49159,
             "rope_theta=1e7 tie_word_embeddings=true embedding_multiplier=12 residual_multiplier=0.22",
             "attention_multiplier=0.0078125 logits_scaling=16"}}},
  };
}

}  // namespace ztrain::config::families
