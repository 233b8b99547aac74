#pragma once
// Adam with decoupled weight decay: Loshchilov and Hutter (ICLR 2019), in the order of torch.optim.AdamW:
//   g = gradient * gradient_multiplier,  lr = learning_rate * lr_scale
//   p *= 1 - lr * weight_decay,  m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
//   p -= lr / bias_correction1 * m / (sqrt(v) / sqrt(bias_correction2) + eps)

#include <cmath>

#include "base/function.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "optim/optimizer.hpp"

namespace ztrain::optim {

/// The constants of Adam's moments and of the step along them, worked out in double, rounded once.
template <class A>
struct AdamCoefficients {
  A multiplier, beta1, rest1, beta2, rest2, inverse_root2, eps, step;

  ZTRAIN_FUNCTION AdamCoefficients(const StepScalars& s, const Settings& o, const Group& group)
      : multiplier(static_cast<A>(s.gradient_multiplier)),
        beta1(static_cast<A>(o.beta1)),
        rest1(static_cast<A>(1 - o.beta1)),
        beta2(static_cast<A>(o.beta2)),
        rest2(static_cast<A>(1 - o.beta2)),
        inverse_root2(static_cast<A>(1 / std::sqrt(s.bias_correction2))),
        eps(static_cast<A>(o.eps)),
        step(static_cast<A>(s.learning_rate * group.lr_scale / s.bias_correction1)) {}
};

/// Updates both moments with gradient g and returns what the parameter is to move by. The fused multiply-adds
/// are spelled out: a compiler that fuses on its own could choose another operand in a loop's last elements
/// than in its body.
template <class A>
ZTRAIN_FUNCTION A adam_move(A g, const AdamCoefficients<A>& c, A& exp_avg, A& exp_avg_sq) {
  exp_avg = std::fma(c.beta1, exp_avg, c.rest1 * g);
  exp_avg_sq = std::fma(c.beta2, exp_avg_sq, c.rest2 * (g * g));
  return -(c.step * exp_avg / std::fma(std::sqrt(exp_avg_sq), c.inverse_root2, c.eps));
}

struct AdamW {
  static constexpr std::string_view name = "adamw";
  static constexpr std::string_view doc = "Adam with decoupled weight decay (Loshchilov and Hutter, 2019)";
  static constexpr Whole whole = Whole::element;
  static std::vector<StateInfo> states(const Settings&) { return {{"exp_avg", {}}, {"exp_avg_sq", {}}}; }

  template <class A>
  struct Coefficients : AdamCoefficients<A> {
    A keep;

    ZTRAIN_FUNCTION Coefficients(const StepScalars& s, const Settings& o, const Group& group)
        : AdamCoefficients<A>(s, o, group),
          keep(static_cast<A>(1 - s.learning_rate * group.lr_scale * group.weight_decay)) {}
  };

  template <class A>
  ZTRAIN_FUNCTION static A step(A value, A gradient, const Coefficients<A>& c, A& exp_avg, A& exp_avg_sq) {
    return std::fma(value, c.keep, adam_move<A>(gradient * c.multiplier, c, exp_avg, exp_avg_sq));
  }
};

}  // namespace ztrain::optim
