#include "config/fields/fields_rows.hpp"

namespace ztrain::config::rows {

std::vector<Field> mixture() {
  constexpr double most_experts = 512, most_chosen = 32;
  return {
      numeric({KEY_OF(model, num_experts), "0", "", between(0, most_experts),
               "Experts of a layer: feed-forwards of which each token uses some (mixtral, qwen2_moe, "
               "qwen3_moe, olmoe). If it is not given, it is what the family has; 0 in families without "
               "experts."}),
      numeric({KEY_OF(model, num_experts_per_tok), "0", "", between(0, most_chosen),
               "How many experts a token goes to: those with the largest scores."}),
      numeric({KEY_OF(model, moe_intermediate_size), "0", "", between(0, 1 << 24),
               "Width of one expert. In mixtral and olmoe it is model.intermediate_size."}),
      numeric({KEY_OF(model, norm_topk_prob), "false", "", any(),
               "The weights of a token's experts are divided by their sum (mixtral: always)."}),
      numeric({KEY_OF(model, shared_expert_intermediate_size), "0", "", between(0, 1 << 24),
               "Width of the expert that all tokens go to, besides those that the router chooses "
               "(qwen2_moe). 0: none."}),
      numeric({KEY_OF(model, n_shared_experts), "0", "", between(0, most_experts),
               "Number of experts that all tokens go to, each as wide as the others. 0: none."}),
      numeric({KEY_OF(model, routed_scaling_factor), "1", "", above(0),
               "The weights of a token's experts are multiplied by it."}),
      numeric({KEY_OF(model, scoring_func), R"("softmax")", "", one_of({"softmax", "sigmoid"}),
               "Scores of the experts, of the router's logits."}),
      numeric({KEY_OF(model, n_group), "0", "", between(0, most_experts),
               "Groups of neighbouring experts; a token chooses from the best model.topk_group of them. 0: "
               "from all experts."}),
      numeric({KEY_OF(model, topk_group), "0", "", between(0, most_experts),
               "Of how many groups a token chooses its experts."}),
      numeric({KEY_OF(model, router_aux_loss_coef), "0", "", from(0),
               "Coefficient of the loss that balances the experts; see experts.balance. If it is not given, "
               "it is what the family has."}),
      numeric(
          {KEY_OF(model, decoder_sparse_step), "1", "layers", between(1, 1000),
           "Every so many layers one has experts: those whose number, counted from 1, is a multiple of "
           "it. The others have a dense feed-forward of model.intermediate_size (qwen2_moe, qwen3_moe)."}),
      numeric({KEY_OF(model, first_k_dense_replace), "0", "layers", between(0, 1000),
               "How many of the first layers have a dense feed-forward."}),
      numeric({KEY_OF(model, mlp_only_layers), "[]", "", between(0, 999),
               "Numbers of layers, counted from 0, that have a dense feed-forward (qwen2_moe, qwen3_moe)."}),
  };
}

std::vector<Field> experts() {
  return {
      numeric({KEY_OF(experts, balance), R"("model")", "", one_of({"model", "none"}),
               "Whether the loss that balances the experts is added (Fedus et al., \"Switch transformers\", "
               "2021; over all layers together, as transformers computes it). model: with the coefficient "
               "model.router_aux_loss_coef. none: it is not."}),
      numeric({KEY_OF(experts, z_loss), "0", "", between(0, 1e3),
               "Coefficient of a loss that keeps the routers' logits small: the mean of logsumexp(logits)^2 "
               "(Zoph et al., \"ST-MoE\", 2022). 0: none."}),
  };
}

}  // namespace ztrain::config::rows
