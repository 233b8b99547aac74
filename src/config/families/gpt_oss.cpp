// gpt-oss. OpenAI, "gpt-oss-120b & gpt-oss-20b model card", 2025.
#include "config/families/families.hpp"

namespace ztrain::config::families {
namespace {

constexpr std::string_view gpt_oss_common =
    "head_dim=64 rms_norm_eps=1e-5 rope_theta=150000 rope_scaling=\"yarn\" rope_factor=32 "
    "rope_original_max_position=4096 rope_beta_fast=32 rope_beta_slow=1 rope_truncate=false "
    "max_position_embeddings=131072 num_experts_per_tok=4 router_aux_loss_coef=0.9";

}  // namespace

std::vector<Architecture> gpt_oss() {
  return {{.family = "gpt_oss",
           .hf_class = "GptOssForCausalLM",
           .model_type = "gpt_oss",
           .doc =
               "llama with biases everywhere, a window in every other layer, a trained logit in each head's "
               "softmax that has no value (a sink), and mixtures of experts with a clamped gate (gpt-oss).",
           .style = {.attention_sinks = true, .activation = "clamped_silu", .router = "router"},
           .files = gpt_oss_expert_files(),
           .keys = {silu,
                    no_attention_dropout,
                    must_say("swiglu_limit", "7.0"),
                    must_say("swiglu_alpha", "1.702"),
                    always("model.mlp_bias", "true"),
                    attention_bias("true"),
                    {"model.attention_output_bias", "attention_bias", "true", KeyRole::own},
                    eps("1e-5"),
                    theta("150000.0"),
                    {.hf = "rope_parameters",
                     .standard = R"({"rope_type": "yarn", "factor": 32.0, "truncate": false,
                                     "original_max_position_embeddings": 4096})"},
                    kv_heads("8"),
                    head_dim("64"),
                    own_window("128"),
                    experts("num_local_experts", "128"),
                    experts_per_token("4"),
                    width,
                    same_expert_width,
                    always("model.norm_topk_prob", "true"),
                    balance("0.001"),
                    layer_types(R"(["sliding_attention", "full_attention"])")},
           .presets = {{"gpt-oss-20b", 2880, 2880, 24, 64, 8, 201088, gpt_oss_common, "num_experts=32"},
                       {"gpt-oss-120b", 2880, 2880, 36, 64, 8, 201088, gpt_oss_common, "num_experts=128"}}}};
}

}  // namespace ztrain::config::families
