#pragma once
// The loss of one pair of answers and its gradient. The formulas are those of TRL's DPOTrainer; docs name the
// papers (base/preference_loss.hpp).

#include <cmath>

#include "base/function.hpp"
#include "kernels/preference/preference.hpp"

namespace ztrain::kernels {

/// Sums of a sequence: SequenceSums.
struct Answer {
  double logp, tokens, reference;
  ZTRAIN_FUNCTION double ratio() const { return logp - reference; }
};

/// The loss, its derivatives with respect to the two log-probabilities, and the rewards.
struct PairValue {
  double loss, by_chosen, by_rejected, chosen_reward, rejected_reward;
};

ZTRAIN_FUNCTION double sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}
ZTRAIN_FUNCTION double log_sigmoid(double x) {
  return x >= 0 ? -std::log1p(std::exp(-x)) : x - std::log1p(std::exp(x));
}

/// A function of one number, and its derivative.
struct Slope {
  double value, slope;
};

/// -log sigmoid(x), where a share `smoothing` of the labels is taken to be wrong.
ZTRAIN_FUNCTION Slope logistic(double x, double smoothing) {
  return {-(1 - smoothing) * log_sigmoid(x) - smoothing * log_sigmoid(-x),
          smoothing * sigmoid(x) - (1 - smoothing) * sigmoid(-x)};
}
ZTRAIN_FUNCTION Slope robust(double x, double smoothing) {
  const double clean = 1 - 2 * smoothing;
  return {(-(1 - smoothing) * log_sigmoid(x) + smoothing * log_sigmoid(-x)) / clean,
          (-(1 - smoothing) * sigmoid(-x) - smoothing * sigmoid(x)) / clean};
}
ZTRAIN_FUNCTION Slope hinge(double x) {
  return x < 1 ? Slope{1 - x, -1} : Slope{0, 0};
}
ZTRAIN_FUNCTION Slope exo_pair(double x, double smoothing) {
  const double s = sigmoid(x), right = std::log1p(-smoothing), wrong = std::log(smoothing);
  return {s * (log_sigmoid(x) - right) + (1 - s) * (log_sigmoid(-x) - wrong),
          s * (1 - s) * (x - right + wrong)};
}
ZTRAIN_FUNCTION Slope discopop(double x) {
  constexpr double tau = 0.05;
  const double m = sigmoid(x / tau), slope = m * (1 - m) / tau, e = std::exp(-x);
  return {-log_sigmoid(x) * (1 - m) + e * m,
          -sigmoid(-x) * (1 - m) + log_sigmoid(x) * slope - e * m + e * slope};
}

/// A loss of x = scale (chosen - rejected), where each answer's number is divided by its length if `norm`.
ZTRAIN_FUNCTION PairValue of_margin(const Slope& f, double scale, double chosen_length,
                                    double rejected_length) {
  return {f.value, f.slope * scale / chosen_length, -f.slope * scale / rejected_length, 0, 0};
}

/// A loss of each answer by itself.
ZTRAIN_FUNCTION PairValue of_each(const PairSettings& s, double a, double b) {
  switch (s.loss) {
    case PairLoss::nca_pair:
      return {-log_sigmoid(a) - 0.5 * log_sigmoid(-a) - 0.5 * log_sigmoid(-b),
              s.beta * (0.5 * sigmoid(a) - sigmoid(-a)), s.beta * 0.5 * sigmoid(b), 0, 0};
    case PairLoss::bco_pair:
      return {-log_sigmoid(a) - log_sigmoid(-b), -s.beta * sigmoid(-a), s.beta * sigmoid(b), 0, 0};
    case PairLoss::apo_zero:
      return {sigmoid(-a) + sigmoid(b), -s.beta * sigmoid(a) * sigmoid(-a), s.beta * sigmoid(b) * sigmoid(-b),
              0, 0};
    case PairLoss::apo_down: {
      const double margin = sigmoid(a - b) * sigmoid(b - a);
      return {sigmoid(a) + sigmoid(b - a), s.beta * (sigmoid(a) * sigmoid(-a) - margin), s.beta * margin, 0,
              0};
    }
    default: {  // sppo_hard, whose targets are +-1 / (2 beta)
      const double u = a / s.beta - 0.5 / s.beta, v = b / s.beta + 0.5 / s.beta;
      return {u * u + v * v, 2 * u, 2 * v, 0, 0};
    }
  }
}

/// The loss per token of the chosen answer, and the log odds ratio of both.
ZTRAIN_FUNCTION PairValue orpo(const PairSettings& s, const Answer& chosen, const Answer& rejected) {
  const double a = chosen.logp / chosen.tokens, b = rejected.logp / rejected.tokens;
  const double not_a = -std::expm1(a), not_b = -std::expm1(b);
  const Slope odds = logistic((a - b) - (std::log(not_a) - std::log(not_b)), 0);
  return {-a + s.beta * odds.value, (-1 + s.beta * odds.slope / not_a) / chosen.tokens,
          -s.beta * odds.slope / not_b / rejected.tokens, s.beta * a, s.beta * b};
}

/// The loss of the values that a reward model gives (Bradley and Terry, 1952). The second term keeps them
/// near zero (Eisenstein et al., "Helping or herding?", 2023).
ZTRAIN_FUNCTION PairValue of_rewards(const PairSettings& s, double chosen, double rejected) {
  const Slope f = logistic(chosen - rejected, 0);
  const double sum = chosen + rejected, by_sum = 2 * s.center * sum;
  return {f.value + s.center * sum * sum, f.slope + by_sum, by_sum - f.slope, chosen, rejected};
}

/// The loss of an answer that is desirable or not, compared with a divergence, which has no gradient.
ZTRAIN_FUNCTION PairValue label_loss(const PairSettings& s, const Answer& answer, bool desirable,
                                     double divergence) {
  const double x = s.beta * (answer.ratio() - divergence) * (desirable ? 1 : -1);
  const double weight = desirable ? s.desirable : s.undesirable;
  return {weight * sigmoid(-x), (desirable ? -1 : 1) * weight * s.beta * sigmoid(x) * sigmoid(-x), 0, 0, 0};
}

ZTRAIN_FUNCTION PairValue pair_loss(const PairSettings& s, const Answer& chosen, const Answer& rejected) {
  if (s.loss == PairLoss::orpo) return orpo(s, chosen, rejected);
  if (s.loss == PairLoss::reward) return of_rewards(s, chosen.logp, rejected.logp);
  const double n = chosen.tokens, m = rejected.tokens;
  if (s.loss == PairLoss::simpo) {
    const double a = s.beta * chosen.logp / n, b = s.beta * rejected.logp / m;
    PairValue v = of_margin(logistic(a - b - s.gamma, s.smoothing), s.beta, n, m);
    v.chosen_reward = a;
    v.rejected_reward = b;
    return v;
  }
  const double u = chosen.ratio(), v = rejected.ratio(), a = s.beta * u, b = s.beta * v, x = a - b;
  PairValue value;
  switch (s.loss) {
    case PairLoss::sigmoid:
      value = of_margin(logistic(x, s.smoothing), s.beta, 1, 1);
      break;
    case PairLoss::sigmoid_norm:
      value = of_margin(logistic(a / n - b / m, s.smoothing), s.beta, n, m);
      break;
    case PairLoss::hinge:
      value = of_margin(hinge(x), s.beta, 1, 1);
      break;
    case PairLoss::ipo: {
      const double apart = u / n - v / m - 0.5 / s.beta;
      value = of_margin({apart * apart, 2 * apart}, 1, n, m);
      break;
    }
    case PairLoss::robust:
      value = of_margin(robust(x, s.smoothing), s.beta, 1, 1);
      break;
    case PairLoss::exo_pair:
      value = of_margin(exo_pair(x, s.smoothing), s.beta, 1, 1);
      break;
    case PairLoss::discopop:
      value = of_margin(discopop(x), s.beta, 1, 1);
      break;
    default:
      value = of_each(s, a, b);
  }
  value.chosen_reward = a;
  value.rejected_reward = b;
  return value;
}

}  // namespace ztrain::kernels
