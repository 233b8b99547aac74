#include "base/preference_loss.hpp"
#include "config/fields/fields_rows.hpp"

namespace ztrain::config::rows {
namespace {

std::vector<std::string> loss_names() {
  std::vector<std::string> names{"none"};
  for (const PairLossRow& row : pair_losses) names.emplace_back(row.name);
  return names;
}

std::string loss_doc() {
  std::string text =
      "The loss. none: that of each token. The others need data with pairs of answers (docs/data.md), and "
      "are "
      "means over the pairs of a step.";
  for (const PairLossRow& row : pair_losses)
    text += " " + std::string(row.name) + ": " + std::string(row.doc) + ".";
  return text;
}

}  // namespace

std::vector<Field> loss() {
  return {
      numeric(
          {KEY_OF(loss, label_smoothing), "0.0", "", below_one(),
           "Smooths labels: the target is learned with a probability of 1 - label_smoothing, and every word "
           "of the vocabulary besides with label_smoothing / model.vocab_size. The loss that is reported, of "
           "validation too, is that of the smoothed labels."}),
      numeric({KEY_OF(loss, z_loss), "0.0", "", between(0, 1e3),
               "Coefficient of a loss that keeps logits small: the mean over tokens of logsumexp(logits)^2 "
               "(Chowdhery et al., \"PaLM\", 2022, with 1e-4). It is a part of the loss that is reported."}),
  };
}

std::vector<Field> preference() {
  return {
      numeric({KEY_OF(preference, loss_type), R"("none")", "", one_of(loss_names()), loss_doc()}),
      on_request(numeric(
          {KEY_OF(preference, beta), "0.1", "", above(0),
           "Factor of the rewards: how strongly the model is held to its reference. ipo calls it tau, orpo "
           "lambda."})),
      on_request(
          numeric({KEY_OF(preference, label_smoothing),
                   "0.0",
                   "",
                   {.least = 0, .most = 0.5, .open_most = true},
                   "Share of the pairs that are taken to have their answers in the wrong order; of sigmoid, "
                   "sigmoid_norm, robust, exo_pair and simpo."})),
      on_request(numeric({KEY_OF(preference, simpo_gamma), "0.5", "", from(0),
                          "Margin of simpo between the rewards; of the other losses none."})),
      on_request(numeric({KEY_OF(preference, desirable_weight), "1.0", "", above(0),
                          "Weight of the loss of desirable answers; of kto and apo_zero_unpaired."})),
      on_request(numeric({KEY_OF(preference, undesirable_weight), "1.0", "", above(0),
                          "Weight of the loss of undesirable answers; of kto and apo_zero_unpaired."})),
  };
}

}  // namespace ztrain::config::rows
