// Keys that most architectures have.
#include "config/families/families.hpp"

namespace ztrain::config::families {

std::vector<ModelKey> common_keys() {
  return {
      {"model.hidden_size", "hidden_size"},
      {"model.intermediate_size", "intermediate_size"},
      {"model.num_hidden_layers", "num_hidden_layers"},
      {"model.num_attention_heads", "num_attention_heads"},
      kv_heads("0"),
      head_dim("0"),
      {"model.vocab_size", "vocab_size"},
      {"model.max_position_embeddings", "max_position_embeddings", "0"},
      eps("1e-6"),
      {"model.initializer_range", "initializer_range", "0.02"},
      {"model.tie_word_embeddings", "tie_word_embeddings", "false"},
  };
}

std::vector<ModelKey> rotary_keys() {
  // Code reads those without a name in config.json from rope_scaling and rope_parameters.
  return {
      theta("10000.0"),
      {"model.rope_scaling"},
      {"model.rope_factor"},
      {"model.rope_low_freq_factor"},
      {"model.rope_high_freq_factor"},
      {"model.rope_original_max_position"},
      {"model.rope_attention_factor"},
      {"model.rope_beta_fast"},
      {"model.rope_beta_slow"},
      {"model.rope_mscale"},
      {"model.rope_mscale_all_dim"},
      {"model.rope_truncate"},
      {"model.rope_short_factor"},
      {"model.rope_long_factor"},
  };
}

}  // namespace ztrain::config::families
