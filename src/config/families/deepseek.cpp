// DeepSeek-V2 and V3: latent attention, and mixtures of experts with groups and shared experts.
#include <iterator>

#include "config/families/families.hpp"

namespace ztrain::config::families {
namespace {

constexpr std::string_view shared =
    "rope_scaling=\"yarn\" rope_factor=40 rope_original_max_position=4096 max_position_embeddings=163840 "
    "head_dim=192 kv_lora_rank=512 qk_nope_head_dim=128 qk_rope_head_dim=64 v_head_dim=128 rms_norm_eps=1e-6";
constexpr BlockStyle style{.shared_expert = "shared_experts"};

constexpr ModelKey own(const char* key, const char* hf, const char* standard, const char* null = "") {
  return {key, hf, standard, KeyRole::own, null};
}

/// Returns the rows of both, and `more`.
std::vector<ModelKey> keys(std::vector<ModelKey> more) {
  const ModelKey rows[]{
      silu,
      no_attention_dropout,
      must_say("moe_layer_freq", "1"),
      always("model.head_dim", "0"),  // that of config.json is the width of what is turned
      kv_heads("0"),
      attention_bias("false"),
      output_bias_too,
      own("model.kv_lora_rank", "kv_lora_rank", "512"),
      own("model.q_lora_rank", "q_lora_rank", "1536", "0"),
      own("model.qk_nope_head_dim", "qk_nope_head_dim", "128"),
      own("model.qk_rope_head_dim", "qk_rope_head_dim", "64"),
      own("model.v_head_dim", "v_head_dim", "128"),
      balance("0.0"),
  };
  more.insert(more.end(), std::begin(rows), std::end(rows));
  return more;
}

}  // namespace

std::vector<Architecture> deepseek() {
  return {
      {.family = "deepseek_v2",
       .hf_class = "DeepseekV2ForCausalLM",
       .model_type = "deepseek_v2",
       .doc = "attention is latent, and layers behind model.first_k_dense_replace are mixtures of experts "
              "beside experts that all tokens go to (DeepSeek-V2).",
       .style = style,
       .files = expert_files(),
       .keys = keys({must_say("mlp_bias", "false"),
                     {"model.scoring_func", "scoring_func", R"("softmax")", KeyRole::fixed},
                     must_say("norm_topk_prob", "false"),
                     experts("n_routed_experts", "64"),
                     experts_per_token("6"),
                     expert_width("1407"),
                     own("model.n_shared_experts", "n_shared_experts", "2"),
                     {"model.first_k_dense_replace", "first_k_dense_replace", "0"},
                     own("model.routed_scaling_factor", "routed_scaling_factor", "1.0"),
                     own("model.topk_method", "topk_method", R"("greedy")"),
                     {"model.n_group", "n_group", "0", KeyRole::free, "0"},
                     {"model.topk_group", "topk_group", "0", KeyRole::free, "0"}}),
       .presets = {{"deepseek-v2-lite", 2048, 10944, 27, 16, 16, 102400, shared,
                    "rope_mscale=0.707 rope_mscale_all_dim=0.707 q_lora_rank=0 moe_intermediate_size=1408 "
                    "n_group=1 topk_group=1 first_k_dense_replace=1"},
                   {"deepseek-v2", 5120, 12288, 60, 128, 128, 102400, shared,
                    "rope_mscale=0.707 rope_mscale_all_dim=0.707 num_experts=160 moe_intermediate_size=1536 "
                    "topk_method=\"group_limited_greedy\" n_group=8 topk_group=3 routed_scaling_factor=16 "
                    "first_k_dense_replace=1"}}},
      {.family = "deepseek_v3",
       .hf_class = "DeepseekV3ForCausalLM",
       .model_type = "deepseek_v3",
       .doc =
           "deepseek_v2, in which scores of experts are sigmoids, and a bias that is not trained takes part "
           "in the choice alone; see experts.bias_update_speed (DeepSeek-V3, R1).",
       .style = style,
       .files = expert_files(),
       .keys = keys({must_say("rope_interleave", "true"),
                     {.hf = "num_nextn_predict_layers", .standard = "0", .role = KeyRole::further_layers},
                     {"model.scoring_func", "scoring_func", R"("sigmoid")", KeyRole::fixed},
                     {"model.topk_method", "topk_method", R"("noaux_tc")", KeyRole::fixed},
                     experts("n_routed_experts", "256"),
                     experts_per_token("8"),
                     expert_width("2048"),
                     own("model.n_shared_experts", "n_shared_experts", "1"),
                     own("model.first_k_dense_replace", "first_k_dense_replace", "3"),
                     own("model.routed_scaling_factor", "routed_scaling_factor", "2.5"),
                     own("model.norm_topk_prob", "norm_topk_prob", "true"),
                     own("model.n_group", "n_group", "8", "1"),
                     own("model.topk_group", "topk_group", "4", "1")}),
       .presets = {{"deepseek-v3", 7168, 18432, 61, 128, 128, 129280, shared,
                    "rope_mscale=1 rope_mscale_all_dim=1"}}},
  };
}

}  // namespace ztrain::config::families
