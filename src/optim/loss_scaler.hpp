#pragma once
// Loss scaling for fp16 gradients. The loss is multiplied by a scale so that small gradients do not vanish
// (Micikevicius et al., "Mixed precision training", ICLR 2018). The dynamic scale follows DeepSpeed's
// DynamicLossScaler step by step.

#include <cstdint>

namespace ztrain::optim {

struct LossScalerOptions {
  double scale = 0;              ///< fixed scale; 0: dynamic
  int initial_scale_power = 16;  ///< exponent of the first dynamic scale, a power of 2
  int window = 1000;             ///< good steps in a row before the scale is doubled
  int hysteresis = 2;  ///< overflows before the scale is halved: the first hysteresis - 1 cost nothing
  /// Whether each good step restores the hysteresis; otherwise only a doubled scale does.
  bool consecutive_hysteresis = false;
  double min_scale = 1;
};

/// State that a checkpoint keeps.
struct LossScalerState {
  double scale = 1;
  std::int64_t good_steps = 0;  ///< good steps since the last overflow or the start
  int hysteresis_left = 1;      ///< overflows until the scale is halved
  bool operator==(const LossScalerState&) const = default;
};

class LossScaler {
 public:
  /// Throws Error if a scale, the window or the hysteresis is out of range.
  explicit LossScaler(const LossScalerOptions& options);
  /// Goes on from a checkpoint. A fixed scale is that of the options.
  LossScaler(const LossScalerOptions& options, const LossScalerState& state);

  double scale() const { return state_.scale; }
  bool dynamic() const { return options_.scale == 0; }
  /// Returns whether the scale cannot fall any more, so that an overflow is not its fault.
  bool at_minimum() const { return !dynamic() || state_.scale <= options_.min_scale; }
  const LossScalerState& state() const { return state_; }

  /// Updates the scale after a step. found_inf says that the gradients were not finite and the step was
  /// skipped. An overflow halves the scale, down to min_scale, once the hysteresis is used up, and from then
  /// on each time. `window` good steps in a row double it.
  void update(bool found_inf);

 private:
  LossScalerOptions options_;
  LossScalerState state_;
};

}  // namespace ztrain::optim
