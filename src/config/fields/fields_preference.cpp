#include "base/preference_loss.hpp"
#include "config/fields/fields_rows.hpp"
#include "files/likelihoods.hpp"

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
           "lambda. reward has none."})),
      on_request(
          numeric({KEY_OF(preference, label_smoothing),
                   "0.0",
                   "",
                   {.least = 0, .most = 0.5, .open_most = true},
                   "Share of the pairs that are taken to have their answers in the wrong order; of sigmoid, "
                   "sigmoid_norm, robust, exo_pair and simpo."})),
      on_request(numeric({KEY_OF(preference, simpo_gamma), "0.5", "", from(0),
                          "Margin of simpo between the rewards; of the other losses none."})),
      on_request(numeric({"preference.center_rewards_coefficient", MEMBER_OF(preference.center_rewards),
                          "0.0", "", from(0),
                          "Coefficient of the mean squared sum of a pair's rewards, which keeps the rewards "
                          "of reward near zero (Eisenstein et al., 2023, with 0.01)."})),
      on_request(numeric({KEY_OF(preference, desirable_weight), "1.0", "", above(0),
                          "Weight of the loss of desirable answers; of kto and apo_zero_unpaired."})),
      on_request(numeric({KEY_OF(preference, undesirable_weight), "1.0", "", above(0),
                          "Weight of the loss of undesirable answers; of kto and apo_zero_unpaired."})),
  };
}

std::vector<Field> distillation() {
  return {
      on_request(read_path(
          {KEY_OF(distillation, teacher), R"("")", "", any(),
           "File that `ztrain evaluate TEACHER --data FILE --write-likelihoods` makes of the files of "
           "data.train. Empty: no distillation."})),
      on_request(numeric(
          {KEY_OF(distillation, weight), "0.5", "", share(),
           "Share of the distillation in the loss of a token, which is (1 - weight) CE + weight KL. CE is "
           "the "
           "negative log-probability of the target; KL is the divergence of the student's probabilities from "
           "the teacher's, over the words of the file. The loss of validation is CE."})),
      on_request(numeric(
          {KEY_OF(distillation, top_k),
           "64",
           "words",
           {.least = 2, .most = most_teacher_words},
           "Likeliest words of the teacher that are learned from at each token, whose probabilities are "
           "divided by their sum. The file has as many or more."})),
  };
}

}  // namespace ztrain::config::rows
