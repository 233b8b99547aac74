#pragma once
// Adam: Kingma and Ba (ICLR 2015), with the L2 penalty in the gradient, as torch.optim.Adam:
//   g = gradient * gradient_multiplier + weight_decay * p, then the moments and the step of AdamW without its
//   decay.

#include "optim/adamw.hpp"

namespace ztrain::optim {

struct Adam {
  static constexpr std::string_view name = "adam";
  static constexpr std::string_view doc = "Adam with an L2 penalty in the gradient (Kingma and Ba, 2015)";
  static constexpr Whole whole = Whole::element;
  static std::vector<StateInfo> states(const Settings& settings) { return AdamW::states(settings); }

  template <class A>
  struct Coefficients : AdamCoefficients<A> {
    A penalty;

    ZTRAIN_FUNCTION Coefficients(const StepScalars& s, const Settings& o, const Group& group)
        : AdamCoefficients<A>(s, o, group), penalty(static_cast<A>(group.weight_decay)) {}
  };

  template <class A>
  ZTRAIN_FUNCTION static A step(A value, A gradient, const Coefficients<A>& c, A& exp_avg, A& exp_avg_sq) {
    const A g = std::fma(gradient, c.multiplier, c.penalty * value);
    return value + adam_move<A>(g, c, exp_avg, exp_avg_sq);
  }
};

}  // namespace ztrain::optim
