#include "config/fields/fields_rows.hpp"

namespace ztrain::config::rows {

std::vector<Field> mixture() {
  constexpr double most_experts = 512, most_chosen = 32, most_groups = 32;
  return {
      numeric(
          {KEY_OF(model, num_experts), "0", "", between(0, most_experts),
           "Experts of a layer: feed-forwards of which each token uses some. If it is not given, it is what "
           "the family has; 0 in families without experts."}),
      numeric({KEY_OF(model, num_experts_per_tok), "0", "", between(0, most_chosen),
               "How many experts a token goes to: those with the largest scores."}),
      numeric({KEY_OF(model, moe_intermediate_size), "0", "", between(0, 1 << 24),
               "Width of one expert. It is model.intermediate_size in families whose config.json has one key "
               "for both."}),
      numeric({KEY_OF(model, norm_topk_prob), "false", "", any(),
               "The weights of a token's experts are divided by their sum. If it is not given, it is what "
               "the family has."}),
      numeric({KEY_OF(model, shared_expert_intermediate_size), "0", "", between(0, 1 << 24),
               "Width of the expert that all tokens go to, besides those that the router chooses. 0: none."}),
      numeric({KEY_OF(model, n_shared_experts), "0", "", between(0, most_experts),
               "Number of experts that all tokens go to, each as wide as the others. 0: none."}),
      numeric({KEY_OF(model, routed_scaling_factor), "1", "", above(0),
               "The weights of a token's experts are multiplied by it."}),
      numeric({KEY_OF(model, scoring_func), R"("softmax")", "", one_of({"softmax", "sigmoid"}),
               "Function that makes the experts' scores from the router's logits."}),
      numeric(
          {KEY_OF(model, topk_method), R"("greedy")", "",
           one_of({"greedy", "group_limited_greedy", "noaux_tc"}),
           "How a token chooses its experts. greedy: those with the largest scores. group_limited_greedy: "
           "those of the groups with the largest scores. noaux_tc: as group_limited_greedy, but a "
           "bias is added to the scores, and the score of a group is the sum of its two largest."}),
      numeric({KEY_OF(model, n_group), "0", "", between(0, most_groups),
               "Groups of neighbouring experts; a token chooses from the best model.topk_group of them. 1: "
               "from all experts. greedy has no groups."}),
      numeric({KEY_OF(model, topk_group), "0", "", between(0, most_groups),
               "Number of groups from which a token chooses its experts."}),
      on_request(numeric(
          {KEY_OF(model, router_aux_loss_coef), "0", "", from(0),
           "Coefficient of the loss that balances the experts; see experts.balance. If it is not given, "
           "it is what model.from or the family has."})),
      numeric({KEY_OF(model, decoder_sparse_step), "1", "layers", between(1, 1000),
               "Layers whose number, counted from 1, is a multiple of it have experts. "
               "The others have a dense feed-forward of model.intermediate_size."}),
      numeric({KEY_OF(model, first_k_dense_replace), "0", "layers", between(0, 1000),
               "How many of the first layers have a dense feed-forward."}),
      numeric({KEY_OF(model, mlp_only_layers), "[]", "", between(0, 999),
               "Numbers of layers, counted from 0, that have a dense feed-forward."}),
  };
}

std::vector<Field> experts() {
  return {
      on_request(numeric(
          {KEY_OF(experts, balance), R"("model")", "", one_of({"model", "sequence", "global", "none"}),
           "The loss that balances the experts; its coefficient is model.router_aux_loss_coef. model: over "
           "the tokens of a micro-batch and of all layers together, as transformers computes it (Fedus et "
           "al., \"Switch transformers\", 2021). sequence: over those of each sequence and layer "
           "(DeepSeek-V2, section 2.2.3; DeepSeek-V3). global: as model, over the micro-batches that all "
           "ranks have at once (Qiu et al., \"Demons in the detail\", 2025). none: no such loss."})),
      on_request(numeric(
          {KEY_OF(experts, z_loss), "0", "", between(0, 1e3),
           "Coefficient of a loss that keeps the routers' logits small: the mean of logsumexp(logits)^2 "
           "(Zoph et al., \"ST-MoE\", 2022). 0: none."})),
      on_request(numeric(
          {KEY_OF(experts, bias_update_speed), "0", "", between(0, 1),
           "Balance without a loss (Wang et al., 2024; DeepSeek-V3, section 2.1.2): each step that is "
           "taken adds it to the bias of every expert that fewer tokens of the step chose than the mean "
           "of its layer, and subtracts it from those that more chose. Only models whose "
           "model.topk_method is noaux_tc have these biases. 0: the biases "
           "stay."})),
      free({KEY_OF(experts, capacity), "0", "even shares", between(0, 1e3),
            "With mesh.expert > 1: room for the rows that a rank sends to each rank of its group, in even "
            "shares of its rows (1.5: half more than if all experts were chosen equally often). No row is "
            "dropped: a step without room for some changes nothing, and is taken again with room for all "
            "and with blocks recomputed. The bits are the same. 0: room for all at once."}),
  };
}

}  // namespace ztrain::config::rows
