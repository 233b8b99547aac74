#include <algorithm>
#include <iterator>

#include "config/families/families.hpp"

namespace ztrain::config::families {
namespace {

constexpr std::string_view qwen2 = "rope_theta=1e6 rms_norm_eps=1e-6",
                           qwen3 = "rope_theta=1e6 rms_norm_eps=1e-6 head_dim=128",
                           tied = "tie_word_embeddings=true",
                           qwen3_moe =
                               "rope_theta=1e6 rms_norm_eps=1e-6 head_dim=128 num_experts=128 "
                               "num_experts_per_tok=8 norm_topk_prob=true router_aux_loss_coef=0.001";

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

std::vector<Architecture> mixtures() {
  return {
      {.family = "qwen2_moe",
       .hf_class = "Qwen2MoeForCausalLM",
       .model_type = "qwen2_moe",
       .doc =
           "qwen2 without windows, in which the feed-forward is a mixture of experts beside an expert that "
           "all tokens go to (Qwen 1.5 and 2, MoE).",
       .style = {.shared_expert = "shared_expert", .shared_expert_gate = true},
       .files = expert_files(),
       .keys = {silu,
                no_attention_dropout,
                kv_heads("16"),
                must_say("use_sliding_window", "false"),
                {"model.attention_bias", "qkv_bias", "true", KeyRole::own},
                experts("num_experts", "60"),
                experts_per_token("4"),
                expert_width("1408"),
                {"model.shared_expert_intermediate_size", "shared_expert_intermediate_size", "5632",
                 KeyRole::own},
                normalised_weights,
                balance("0.001"),
                sparse_step,
                dense_layers},
       .presets = {{"qwen1.5-moe-a2.7b", 2048, 5632, 24, 16, 16, 151936, qwen2},
                   {"qwen2-57b-a14b", 3584, 18944, 28, 28, 4, 151936, qwen2,
                    "num_experts=64 num_experts_per_tok=8 moe_intermediate_size=2560 "
                    "shared_expert_intermediate_size=20480"}}},
      {.family = "qwen3_moe",
       .hf_class = "Qwen3MoeForCausalLM",
       .model_type = "qwen3_moe",
       .doc =
           "qwen3, in which the feed-forward is a mixture of experts, and all layers or none have a window "
           "(Qwen 3, MoE).",
       .dense = "qwen3",
       .files = expert_files(),
       .keys = {silu,
                no_attention_dropout,
                kv_heads("4"),
                attention_bias("false"),
                output_bias_too,
                qk_norm,
                window("4096"),
                {.hf = "use_sliding_window", .standard = "false"},
                experts("num_experts", "128", "num_local_experts"),
                experts_per_token("8"),
                expert_width("768"),
                normalised_weights,
                balance("0.001"),
                sparse_step,
                dense_layers},
       .presets = {{"qwen3-30b-a3b", 2048, 6144, 48, 32, 4, 151936, qwen3_moe, "moe_intermediate_size=768"},
                   {"qwen3-235b-a22b", 4096, 12288, 94, 64, 4, 151936, qwen3_moe,
                    "moe_intermediate_size=1536"}}},
  };
}

}  // namespace

std::vector<Architecture> qwen() {
  std::vector<Architecture> all{
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
  std::ranges::move(mixtures(), std::back_inserter(all));
  return all;
}

}  // namespace ztrain::config::families
