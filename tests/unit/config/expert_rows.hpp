#pragma once
// Rows of config_families.cpp for mixtures of experts.

#include <utility>
#include <vector>

namespace ztrain::config::config_families_test {

/// A config.json, what a deck has of it, and what is written of that besides.
struct Row {
  const char* hf_class;
  const char* keys;
  std::vector<std::pair<const char*, const char*>> deck;
  const char* written = "{}";
};

/// Mixtures of experts.
inline std::vector<Row> expert_rows() {
  return {
      {"MixtralForCausalLM",
       R"({"num_local_experts": 4, "router_aux_loss_coef": 0.02, "output_router_logits": true})",
       {{"num_experts", "4"},
        {"num_experts_per_tok", "2"},
        {"moe_intermediate_size", "128"},
        {"norm_topk_prob", "true"},
        {"router_aux_loss_coef", "0.02"},
        {"sliding_window", "0"},
        {"rope_theta", "1000000"}},
       R"({"num_local_experts": 4, "num_experts": "absent", "intermediate_size": 128, "sliding_window": null,
           "router_jitter_noise": 0.0})"},
      {"Qwen2MoeForCausalLM",
       R"({"qkv_bias": false, "sliding_window": 9, "mlp_only_layers": [1, 2],
           "shared_expert_intermediate_size": 48, "moe_intermediate_size": 24,
           "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention"]})",
       {{"num_experts", "60"},
        {"num_experts_per_tok", "4"},
        {"attention_bias", "false"},
        {"moe_intermediate_size", "24"},
        {"intermediate_size", "128"},
        {"shared_expert_intermediate_size", "48"},
        {"sliding_window", "0"},
        {"mlp_only_layers", "[1, 2]"}},
       R"({"qkv_bias": false, "mlp_only_layers": [1, 2], "decoder_sparse_step": 1, "norm_topk_prob": false})"},
      {"Qwen3MoeForCausalLM",
       R"({"num_local_experts": 16, "decoder_sparse_step": 2, "mlp_only_layers": null, "norm_topk_prob": true,
           "use_sliding_window": true, "sliding_window": 9})",
       {{"num_experts", "16"},
        {"moe_intermediate_size", "768"},
        {"decoder_sparse_step", "2"},
        {"mlp_only_layers", "[]"},
        {"norm_topk_prob", "true"},
        {"qk_norm", "true"},
        {"sliding_window", "9"}},
       R"({"num_experts": 16, "mlp_only_layers": [], "use_sliding_window": true})"},
      {"OlmoeForCausalLM",
       R"({"clip_qkv": null})",
       {{"num_experts", "64"},
        {"moe_intermediate_size", "128"},
        {"qk_norm", "true"},
        {"router_aux_loss_coef", "0.01"}},
       R"({"clip_qkv": null, "num_experts": 64})"},
  };
}

inline std::vector<Row> gpt_oss_rows() {
  return {
      {"GptOssForCausalLM",
       R"({"num_local_experts": 4, "attention_bias": true, "sliding_window": 9, "swiglu_limit": 7.0,
           "quantization_config": {"quant_method": "mxfp4"},
           "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "truncate": false,
                            "original_max_position_embeddings": 16}})",
       {{"num_experts", "4"},
        {"num_experts_per_tok", "4"},
        {"moe_intermediate_size", "128"},
        {"norm_topk_prob", "true"},
        {"attention_output_bias", "true"},
        {"mlp_bias", "true"},
        {"sliding_window", "9"},
        {"layer_types", R"(["sliding_attention", "full_attention"])"},
        {"rope_theta", "150000"},
        {"rope_truncate", "false"}},
       R"({"num_local_experts": 4, "attention_bias": true, "swiglu_limit": 7.0, "swiglu_alpha": 1.702,
           "quantization_config": "absent", "layer_types":
           ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]})"},
      {"GptOssForCausalLM",
       "{}",
       {{"rope_scaling", "\"yarn\""},
        {"rope_factor", "32"},
        {"rope_original_max_position", "4096"},
        {"rope_truncate", "false"}}},
      {"GptOssForCausalLM",
       R"({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}})",
       {{"rope_scaling", "\"none\""}},
       R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})"},
  };
}

/// Rows of families with latent attention.
inline std::vector<Row> latent_rows() {
  return {
      {"DeepseekV2ForCausalLM",
       R"({"q_lora_rank": null, "n_group": null, "topk_group": null, "num_key_value_heads": 4, "head_dim": 64,
           "n_routed_experts": 16, "topk_method": "greedy", "scoring_func": "softmax", "aux_loss_alpha": 0.001,
           "moe_layer_freq": 1})",
       {{"q_lora_rank", "0"},
        {"kv_lora_rank", "512"},
        {"head_dim", "192"},
        {"num_experts", "16"},
        {"n_shared_experts", "2"},
        {"n_group", "0"},
        {"first_k_dense_replace", "0"},
        {"norm_topk_prob", "false"}},
       R"({"q_lora_rank": null, "n_group": null, "n_routed_experts": 16, "v_head_dim": 128, "head_dim": "absent"})"},
      {"DeepseekV3ForCausalLM",
       R"({"num_key_value_heads": 4, "topk_method": "noaux_tc", "num_nextn_predict_layers": 1,
           "qk_rope_head_dim": 32, "qk_nope_head_dim": 127, "first_k_dense_replace": 2})",
       {{"q_lora_rank", "1536"},
        {"head_dim", "159"},
        {"num_experts", "256"},
        {"scoring_func", "\"sigmoid\""},
        {"n_group", "8"},
        {"routed_scaling_factor", "2.5"},
        {"first_k_dense_replace", "2"}},
       R"({"num_nextn_predict_layers": 0, "qk_rope_head_dim": 32, "topk_method": "noaux_tc", "topk_group": 4})"},
      {"DeepseekV3ForCausalLM",
       R"({"num_key_value_heads": 4, "n_group": null, "topk_group": null})",
       {{"n_group", "1"}, {"topk_group", "1"}},
       R"({"n_group": 1, "topk_group": 1})"},
  };
}

}  // namespace ztrain::config::config_families_test
