#pragma once
// Serial float64 optimizers, operation by operation in the order of torch.optim (Lion: of its paper), on one
// element.

#include <cmath>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "kernel_interface/step_scalars.hpp"
#include "optim/optimizer.hpp"

namespace ztrain::kernels::reference {

/// A parameter element and what the rule keeps beside it.
struct OptimizerElement {
  double value = 0;
  std::vector<double> states;
};

inline void adam_moments(OptimizerElement& e, double g, const StepScalars& s, const optim::Settings& o,
                         double lr) {
  double& m = e.states[0];
  double& v = e.states[1];
  m = o.beta1 * m + (1 - o.beta1) * g;
  v = o.beta2 * v + (1 - o.beta2) * g * g;
  const double denominator = std::sqrt(v) / std::sqrt(s.bias_correction2) + o.eps;
  e.value -= lr / s.bias_correction1 * m / denominator;
}

/// After its warm-up the second moment stays as it is, and what has none does not move.
inline void frozen_adam(OptimizerElement& e, double g, const StepScalars& s, const optim::Settings& o,
                        double lr) {
  double& m = e.states[0];
  const double v = e.states[1], corrected = v / (1 - std::pow(o.beta2, static_cast<double>(o.freeze_step)));
  m = v == 0 ? 0 : o.beta1 * m + (1 - o.beta1) * g;
  if (v != 0) e.value -= lr / s.bias_correction1 * m / (std::sqrt(corrected) + o.eps);
}

inline void sgd(OptimizerElement& e, double g, const optim::Settings& o, double lr) {
  if (o.momentum == 0) {
    e.value -= lr * g;
    return;
  }
  double& buffer = e.states[0];
  buffer = o.momentum * buffer + g;
  e.value -= lr * (o.nesterov ? g + o.momentum * buffer : buffer);
}

inline void lion(OptimizerElement& e, double g, const optim::Settings& o, double lr, double decay) {
  double& m = e.states[0];
  const double c = o.beta1 * m + (1 - o.beta1) * g;
  const double sign = c > 0 ? 1 : c < 0 ? -1 : 0;
  e.value -= lr * (sign + decay * e.value);
  m = o.beta2 * m + (1 - o.beta2) * g;
}

/// The first half of a step of muon: the value becomes what is orthogonalised.
inline void muon(OptimizerElement& e, double g, const optim::Settings& o) {
  double& buffer = e.states[0];
  buffer = o.momentum * buffer + (1 - o.momentum) * g;
  e.value = o.nesterov ? (1 - o.momentum) * g + o.momentum * buffer : buffer;
}

/// One step of a rule without coded states.
inline void optimizer_step(std::string_view rule, OptimizerElement& e, double gradient, const StepScalars& s,
                           const optim::Settings& o, const optim::Group& group) {
  const double lr = s.learning_rate * group.lr_scale, g = gradient * s.gradient_multiplier;
  if (rule == "adamw") {
    e.value *= 1 - lr * group.weight_decay;
    adam_moments(e, g, s, o, lr);
  } else if (rule == "onebit_adam") {
    e.value *= 1 - lr * group.weight_decay;
    if (s.optimizer_step < static_cast<double>(o.freeze_step))
      adam_moments(e, g, s, o, lr);
    else
      frozen_adam(e, gradient * s.unclipped_multiplier(), s, o, lr);
  } else if (rule == "adam") {
    adam_moments(e, g + group.weight_decay * e.value, s, o, lr);
  } else if (rule == "sgd") {
    sgd(e, g + group.weight_decay * e.value, o, lr);
  } else if (rule == "lion") {
    lion(e, g, o, lr, group.weight_decay);
  } else if (rule == "muon") {
    muon(e, g, o);
  } else if (rule == "muon_move") {  // the gradient is the orthogonalised update
    e.value = (1 - lr * group.weight_decay) * e.value - lr * gradient;
  } else if (rule == "ema") {  // the gradient is the parameter that is averaged
    e.value = o.momentum * e.value + (1 - o.momentum) * gradient;
  } else {
    throw std::logic_error("no reference for this rule");
  }
}

}  // namespace ztrain::kernels::reference
