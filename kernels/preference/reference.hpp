#pragma once
// Plain serial losses of pairs of answers in float64, as TRL's trainers write them down.

#include <cmath>
#include <string_view>

#include "base/error.hpp"

namespace ztrain::kernels::reference {

/// Log-probabilities of a pair under both models, and the numbers of trained tokens.
struct PairNumbers {
  double chosen, rejected, reference_chosen, reference_rejected, chosen_tokens, rejected_tokens;
};

/// beta, label smoothing, SimPO's margin, the coefficient that centers rewards.
struct PairConstants {
  double beta, smoothing, gamma, center = 0;
};

inline double log_sigmoid(double x) {
  return -std::log(1 + std::exp(-x));
}
inline double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

inline double pair_loss(std::string_view name, const PairNumbers& p, const PairConstants& c) {
  const double chosen = p.chosen - p.reference_chosen, rejected = p.rejected - p.reference_rejected,
               delta = chosen - rejected, mean = chosen / p.chosen_tokens - rejected / p.rejected_tokens;
  const auto smoothed = [&](double x) {
    return -log_sigmoid(x) * (1 - c.smoothing) - log_sigmoid(-x) * c.smoothing;
  };
  if (name == "sigmoid") return smoothed(c.beta * delta);
  if (name == "sigmoid_norm") return smoothed(c.beta * mean);
  if (name == "hinge") return std::max(0.0, 1 - c.beta * delta);
  if (name == "ipo") return std::pow(mean - 1 / (2 * c.beta), 2);
  if (name == "robust")
    return (-(1 - c.smoothing) * log_sigmoid(c.beta * delta) + c.smoothing * log_sigmoid(-c.beta * delta)) /
           (1 - 2 * c.smoothing);
  if (name == "exo_pair")
    return sigmoid(c.beta * delta) * (log_sigmoid(c.beta * delta) - std::log(1 - c.smoothing)) +
           sigmoid(-c.beta * delta) * (log_sigmoid(-c.beta * delta) - std::log(c.smoothing));
  if (name == "nca_pair")
    return -log_sigmoid(c.beta * chosen) - 0.5 * log_sigmoid(-c.beta * chosen) -
           0.5 * log_sigmoid(-c.beta * rejected);
  if (name == "bco_pair") return -log_sigmoid(c.beta * chosen) - log_sigmoid(-c.beta * rejected);
  if (name == "sppo_hard") return std::pow(chosen - 0.5 / c.beta, 2) + std::pow(rejected + 0.5 / c.beta, 2);
  if (name == "apo_zero") return 1 - sigmoid(c.beta * chosen) + sigmoid(c.beta * rejected);
  if (name == "apo_down") return sigmoid(c.beta * chosen) + 1 - sigmoid(c.beta * delta);
  if (name == "discopop") {
    const double x = c.beta * delta, modulation = sigmoid(x / 0.05);
    return -log_sigmoid(x) * (1 - modulation) + std::exp(-x) * modulation;
  }
  if (name == "reward")
    return -log_sigmoid(p.chosen - p.rejected) + c.center * std::pow(p.chosen + p.rejected, 2);
  const double a = p.chosen / p.chosen_tokens, b = p.rejected / p.rejected_tokens;
  if (name == "simpo") return smoothed(c.beta * (a - b) - c.gamma);
  if (name == "orpo") {
    const double odds = (a - b) - (std::log1p(-std::exp(a)) - std::log1p(-std::exp(b)));
    return -a - c.beta * log_sigmoid(odds);
  }
  fail("the reference knows no loss '{}'", name);
}

}  // namespace ztrain::kernels::reference
