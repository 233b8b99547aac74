#pragma once
// Loss scaling for fp16 gradients: what the loss is multiplied by, so that small gradients do not vanish
// (Micikevicius et al., "Mixed precision training", ICLR 2018). The dynamic scale follows DeepSpeed's
// DynamicLossScaler step by step.

#include <cstdint>

namespace ztrain::optim {

struct LossScalerOptions {
  double scale = 0;              ///< a scale that never changes; 0: dynamic
  int initial_scale_power = 16;  ///< the dynamic scale starts at 2^this
  int window = 1000;             ///< good steps in a row before it is doubled
  int hysteresis = 2;            ///< overflows before it is halved: the first hysteresis - 1 cost nothing
  bool consecutive_hysteresis = false;  ///< each good step renews them; otherwise only a raised scale does
  double min_scale = 1;
};

/// What a checkpoint keeps.
struct LossScalerState {
  double scale = 1;
  std::int64_t good_steps = 0;  ///< since the last overflow, or the start
  int hysteresis_left = 1;      ///< overflows until the scale is halved
  bool operator==(const LossScalerState&) const = default;
};

class LossScaler {
 public:
  /// Throws Error when a scale, the window or the hysteresis is out of range.
  explicit LossScaler(const LossScalerOptions& options);
  /// Goes on from a checkpoint. A scale that never changes is that of the options.
  LossScaler(const LossScalerOptions& options, const LossScalerState& state);

  double scale() const { return state_.scale; }
  bool dynamic() const { return options_.scale == 0; }
  /// At the smallest scale, an overflow is no longer the scale's fault.
  bool at_minimum() const { return !dynamic() || state_.scale <= options_.min_scale; }
  const LossScalerState& state() const { return state_; }

  /// After every step. found_inf: its gradients were not finite, and it was skipped. An overflow halves the
  /// scale, down to min_scale, once the hysteresis is used up, and from then on each time; `window` good
  /// steps in a row double it.
  void update(bool found_inf);

 private:
  LossScalerOptions options_;
  LossScalerState state_;
};

}  // namespace ztrain::optim
