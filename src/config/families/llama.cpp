#include "config/families/families.hpp"

namespace ztrain::config::families {
namespace {

constexpr std::string_view llama3 = "rope_theta=5e5",
                           llama3_1 =
                               "rope_theta=5e5 rope_scaling=\"llama3\" rope_factor=8 "
                               "rope_low_freq_factor=1 rope_high_freq_factor=4 "
                               "rope_original_max_position=8192";

}  // namespace

std::vector<Architecture> llama() {
  return {
      {.family = "llama",
       .hf_class = "LlamaForCausalLM",
       .model_type = "llama",
       .doc = "RMSNorm, RoPE, grouped-query attention, SwiGLU; all four projections of attention may have "
              "biases (Llama 2, 3, 3.1, 3.2).",
       .keys = {silu, no_attention_dropout, attention_bias("false"), output_bias_too,
                must_say("mlp_bias", "false")},
       .presets = {{"smoke", 64, 176, 2, 4, 2, 257},
                   {"100m", 768, 2048, 12, 12, 12, 32000},
                   {"tinyllama-1.1b", 2048, 5632, 22, 32, 4, 32000},
                   {"llama2-7b", 4096, 11008, 32, 32, 32, 32000},
                   {"llama2-13b", 5120, 13824, 40, 40, 40, 32000},
                   {"llama2-70b", 8192, 28672, 80, 64, 8, 32000},
                   {"llama3-8b", 4096, 14336, 32, 32, 8, 128256, llama3},
                   {"llama3-70b", 8192, 28672, 80, 64, 8, 128256, llama3},
                   {"llama3.1-8b", 4096, 14336, 32, 32, 8, 128256, llama3_1},
                   {"llama3.1-70b", 8192, 28672, 80, 64, 8, 128256, llama3_1},
                   {"llama3.1-405b", 16384, 53248, 126, 128, 8, 128256, llama3_1},
                   {"llama3.2-1b", 2048, 8192, 16, 32, 8, 128256, llama3_1,
                    "rope_factor=32 tie_word_embeddings=true"},
                   {"llama3.2-3b", 3072, 8192, 28, 24, 8, 128256, llama3_1,
                    "rope_factor=32 tie_word_embeddings=true"}}},
  };
}

}  // namespace ztrain::config::families
