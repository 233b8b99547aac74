#include "config/families/families.hpp"

namespace ztrain::config::families {
namespace {

constexpr std::string_view published_starcoder =
    "sliding_window=4096 initializer_range=0.018042 tie_word_embeddings=true";

}  // namespace

std::vector<Architecture> starcoder() {
  return {
      {.family = "starcoder2",
       .hf_class = "Starcoder2ForCausalLM",
       .model_type = "starcoder2",
       .doc =
           "LayerNorm, RoPE, grouped-query attention, a feed-forward of GELU without a gate, biases in all "
           "linear layers; all layers may have a window (StarCoder 2).",
       .style =
           {.norm = NormKind::layer, .activation = "gelu_tanh", .gate = "", .up = "c_fc", .down = "c_proj"},
       .keys = {must_say("hidden_act", R"("gelu_pytorch_tanh")"),
                dropped("attention_dropout"),
                dropped("residual_dropout"),
                dropped("embedding_dropout"),
                {"model.attention_bias", "use_bias", "true", KeyRole::own},
                {"model.attention_output_bias", "use_bias", "true"},
                {"model.mlp_bias", "use_bias", "true"},
                kv_heads("2"),
                {"model.rms_norm_eps", "norm_epsilon", "1e-5"},
                {"model.initializer_range", "initializer_range", "0.018042"},
                {"model.tie_word_embeddings", "tie_word_embeddings", "true", KeyRole::own},
                window("0")},
       .presets = {{"starcoder2-3b", 3072, 12288, 30, 24, 2, 49152, published_starcoder,
                    "rope_theta=999999.4420358813"},
                   {"starcoder2-7b", 4608, 18432, 32, 36, 4, 49152, published_starcoder, "rope_theta=1e6"}}},
  };
}

}  // namespace ztrain::config::families
