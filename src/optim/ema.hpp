#pragma once
// The exponential moving average of parameters (Polyak and Juditsky, "Acceleration of stochastic
// approximation by averaging", 1992, with weights that decay), which any optimizer may keep beside its own
// states:
//   average = decay * average + (1 - decay) * parameter
// It has an op of its own after the optimizer's, so no other rule knows of averages.

#include <cmath>

#include "base/function.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "optim/optimizer.hpp"

namespace ztrain::optim {

/// The value is the average, and the gradient is the parameter. The decay is Settings::momentum.
struct Ema {
  static constexpr std::string_view name = average_state;
  static constexpr std::string_view doc = "moving average of parameters";
  static constexpr Whole whole = Whole::element;
  /// Kernels take parameters of any type in place of the gradient.
  static constexpr bool averages = true;
  static std::vector<StateInfo> states(const Settings&) { return {}; }

  template <class A>
  struct Coefficients {
    A rest;

    ZTRAIN_FUNCTION Coefficients(const StepScalars&, const Settings& o, const Group&)
        : rest(static_cast<A>(1 - o.momentum)) {}
  };

  /// An average that equals the parameter keeps its bits.
  template <class A>
  ZTRAIN_FUNCTION static A step(A average, A parameter, const Coefficients<A>& c) {
    return std::fma(c.rest, parameter - average, average);
  }
};

}  // namespace ztrain::optim
