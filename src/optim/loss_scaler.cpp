#include "optim/loss_scaler.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace ztrain::optim {
namespace {

constexpr double factor = 2;

void check(const LossScalerOptions& o) {
  REQUIRE(o.scale >= 0 && std::isfinite(o.scale), "loss scale: {} must be positive, or 0 for a dynamic scale",
          o.scale);
  REQUIRE(o.initial_scale_power >= 0 && o.initial_scale_power <= 126,
          "loss scale: it starts at 2^{}; the power must be 0 to 126", o.initial_scale_power);
  REQUIRE(o.window >= 1, "loss scale: a window of {} steps; it must be at least 1", o.window);
  REQUIRE(o.hysteresis >= 1, "loss scale: a hysteresis of {}; it must be at least 1", o.hysteresis);
  REQUIRE(o.min_scale > 0 && std::isfinite(o.min_scale),
          "loss scale: the smallest is {}; it must be positive", o.min_scale);
}

LossScalerState initial(const LossScalerOptions& o) {
  return {o.scale > 0 ? o.scale : std::ldexp(1.0, o.initial_scale_power), 0, o.hysteresis};
}

}  // namespace

LossScaler::LossScaler(const LossScalerOptions& options) : LossScaler(options, initial(options)) {}

LossScaler::LossScaler(const LossScalerOptions& options, const LossScalerState& state)
    : options_(options), state_(state) {
  check(options_);
  REQUIRE(state_.scale > 0 && std::isfinite(state_.scale) && state_.good_steps >= 0 &&
              state_.hysteresis_left >= 1,
          "loss scale: a state of scale {}, {} good steps and hysteresis {} cannot be continued",
          state_.scale, state_.good_steps, state_.hysteresis_left);
  if (!dynamic()) state_ = initial(options_);
  state_.hysteresis_left = std::min(state_.hysteresis_left, options_.hysteresis);
}

void LossScaler::update(bool found_inf) {
  if (!dynamic()) return;
  if (found_inf) {
    state_.good_steps = 0;
    if (state_.hysteresis_left > 1)
      --state_.hysteresis_left;
    else
      state_.scale = std::max(state_.scale / factor, options_.min_scale);
    return;
  }
  ++state_.good_steps;
  const bool raised = state_.good_steps % options_.window == 0;
  if (options_.consecutive_hysteresis || raised) state_.hysteresis_left = options_.hysteresis;
  if (raised) state_.scale *= factor;
}

}  // namespace ztrain::optim
