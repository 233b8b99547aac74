#pragma once
// Stochastic gradient descent as torch.optim.SGD with dampening 0 (Sutskever, Martens, Dahl and Hinton, "On
// the importance of initialization and momentum in deep learning", ICML 2013):
//   g = gradient * gradient_multiplier + weight_decay * p,  lr = learning_rate * lr_scale
//   without momentum:  p -= lr g
//   with:              b = momentum b + g,  p -= lr b, or with nesterov p -= lr (g + momentum b)

#include <cmath>

#include "base/error.hpp"
#include "base/function.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "optim/optimizer.hpp"

namespace ztrain::optim {

struct Sgd {
  static constexpr std::string_view name = "sgd";
  static constexpr std::string_view doc =
      "gradient descent, with momentum or Nesterov's (Sutskever et al., 2013)";
  static constexpr Whole whole = Whole::element;
  static std::vector<StateInfo> states(const Settings& settings) {
    if (settings.nesterov && settings.momentum == 0)
      throw Error("sgd with nesterov needs a momentum above 0");
    if (settings.momentum == 0) return {};
    return {{"momentum_buffer", {}}};
  }

  template <class A>
  struct Coefficients {
    A multiplier, penalty, momentum, of_gradient, of_buffer, descent;

    ZTRAIN_FUNCTION Coefficients(const StepScalars& s, const Settings& o, const Group& group)
        : multiplier(static_cast<A>(s.gradient_multiplier)),
          penalty(static_cast<A>(group.weight_decay)),
          momentum(static_cast<A>(o.momentum)),
          of_gradient(o.nesterov ? A(1) : A(0)),
          of_buffer(o.nesterov ? static_cast<A>(o.momentum) : A(1)),
          descent(static_cast<A>(-s.learning_rate * group.lr_scale)) {}
  };

  template <class A>
  ZTRAIN_FUNCTION static A step(A value, A gradient, const Coefficients<A>& c) {
    return std::fma(c.descent, std::fma(gradient, c.multiplier, c.penalty * value), value);
  }

  template <class A>
  ZTRAIN_FUNCTION static A step(A value, A gradient, const Coefficients<A>& c, A& buffer) {
    const A g = std::fma(gradient, c.multiplier, c.penalty * value);
    buffer = std::fma(c.momentum, buffer, g);
    return std::fma(c.descent, std::fma(c.of_buffer, buffer, c.of_gradient * g), value);
  }
};

}  // namespace ztrain::optim
