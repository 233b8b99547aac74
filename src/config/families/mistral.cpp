#include "config/families/families.hpp"

namespace ztrain::config::families {
namespace {

constexpr std::string_view mixtral = "rope_theta=1e6 num_experts=8 num_experts_per_tok=2";

}  // namespace

std::vector<Architecture> mistral() {
  return {
      {.family = "mistral",
       .hf_class = "MistralForCausalLM",
       .model_type = "mistral",
       .doc = "llama without biases; all layers may have a sliding window (Mistral 7B, Nemo, Small).",
       .keys = {silu, no_attention_dropout, kv_heads("8"), window("4096")},
       .presets = {{"mistral-7b-v0.1", 4096, 14336, 32, 32, 8, 32000, "sliding_window=4096"},
                   {"mistral-7b-v0.3", 4096, 14336, 32, 32, 8, 32768, "rope_theta=1e6"},
                   {"mistral-nemo-12b", 5120, 14336, 40, 32, 8, 131072, "rope_theta=1e6 head_dim=128"},
                   {"mistral-small-24b", 5120, 32768, 40, 32, 8, 131072, "rope_theta=1e8 head_dim=128"},
                   {"ministral-8b", 4096, 12288, 36, 32, 8, 131072, "rope_theta=1e8 head_dim=128",
                    "sliding_window=32768"}}},
      {.family = "ministral",
       .hf_class = "MinistralForCausalLM",
       .model_type = "ministral",
       .doc = "mistral, in which some layers may have the window and others not (Ministral).",
       .keys = {silu, no_attention_dropout, kv_heads("8"), window("4096"),
                layer_types(R"(["sliding_attention"])")}},
      {.family = "mixtral",
       .hf_class = "MixtralForCausalLM",
       .model_type = "mixtral",
       .doc = "mistral, in which the feed-forward is a mixture of experts (Mixtral; Jiang et al., \"Mixtral "
              "of experts\", 2024).",
       .dense = "mistral",
       .files = mixtral_expert_files(),
       .keys = {silu, no_attention_dropout, kv_heads("8"), window("0"), theta("1000000.0"),
                must_say("router_jitter_noise", "0.0"), experts("num_local_experts", "8"),
                experts_per_token("2"), width, same_expert_width, always("model.norm_topk_prob", "true"),
                balance("0.001")},
       .presets = {{"mixtral-8x7b", 4096, 14336, 32, 32, 8, 32000, mixtral, "router_aux_loss_coef=0.02"},
                   {"mixtral-8x22b", 6144, 16384, 56, 48, 8, 32000, mixtral}}},
  };
}

}  // namespace ztrain::config::families
