#pragma once
// Lion: Chen et al., "Symbolic discovery of optimization algorithms" (NeurIPS 2023):
//   g = gradient * gradient_multiplier,  lr = learning_rate * lr_scale
//   p -= lr (sign(beta1 m + (1 - beta1) g) + weight_decay p),  m = beta2 m + (1 - beta2) g
// sign(0) = 0.

#include <cmath>

#include "base/function.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "optim/optimizer.hpp"

namespace ztrain::optim {

struct Lion {
  static constexpr std::string_view name = "lion";
  static constexpr std::string_view doc =
      "sign of an interpolated momentum, decoupled decay (Chen et al., 2023)";
  static constexpr Whole whole = Whole::element;
  static std::vector<StateInfo> states(const Settings&) { return {{"exp_avg", {}}}; }

  template <class A>
  struct Coefficients {
    A multiplier, keep, beta1, rest1, beta2, rest2, lr;

    ZTRAIN_FUNCTION Coefficients(const StepScalars& s, const Settings& o, const Group& group)
        : multiplier(static_cast<A>(s.gradient_multiplier)),
          keep(static_cast<A>(1 - s.learning_rate * group.lr_scale * group.weight_decay)),
          beta1(static_cast<A>(o.beta1)),
          rest1(static_cast<A>(1 - o.beta1)),
          beta2(static_cast<A>(o.beta2)),
          rest2(static_cast<A>(1 - o.beta2)),
          lr(static_cast<A>(s.learning_rate * group.lr_scale)) {}
  };

  template <class A>
  ZTRAIN_FUNCTION static A step(A value, A gradient, const Coefficients<A>& c, A& exp_avg) {
    const A g = gradient * c.multiplier;
    const A direction = std::fma(c.beta1, exp_avg, c.rest1 * g);
    exp_avg = std::fma(c.beta2, exp_avg, c.rest2 * g);
    const A move = direction > 0 ? -c.lr : direction < 0 ? c.lr : A(0);
    return std::fma(value, c.keep, move);
  }
};

}  // namespace ztrain::optim
