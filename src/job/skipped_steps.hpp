#pragma once
// Steps whose gradients are not finite: they are skipped, and with fp16 parameters the loss scale follows.

#include <cstdint>
#include <string>

#include "config/deck.hpp"
#include "optim/loss_scaler.hpp"

namespace ztrain::job {

class SkippedSteps {
 public:
  /// saved, and the steps that were skipped in a row: from a checkpoint, or null and 0. Without fp16
  /// parameters the scale is 1.
  explicit SkippedSteps(const config::Deck& deck, const optim::LossScalerState* saved = nullptr,
                        int skipped = 0);

  /// What the kernels multiply the loss gradient by. Gradients here are sums over tokens, and loss scales are
  /// meant for means: fp16 runs divide by a rank's tokens of a step (rounded down to a power of two).
  double loss_scale() const { return scaler_.scale() / tokens_; }
  const optim::LossScalerState& state() const { return scaler_.state(); }

  /// To be called after every step with what it found, which is the same on all ranks. What to tell the user;
  /// "" for nothing.
  /// Throws AgreedError where it cannot be skipped: units were stepped before it was known to be not finite.
  std::string after_step(bool found_inf, std::int64_t step);

  int skipped_in_a_row() const { return skipped_in_a_row_; }
  /// So many steps in a row were skipped that the weights are the cause: with fp16, also at a scale that
  /// cannot fall further.
  bool diverging() const;
  /// Returns whether the run ended diverging. No later step can show it, so without fp16 two skipped steps in
  /// a row are enough: they had different data.
  bool diverged_at_end() const;
  /// So many steps in a row were skipped that the run is to end. With a dynamic loss scale it goes on at the
  /// smallest scale, with a warning.
  bool has_given_up() const;
  /// It has, and no other loss scale could make a step of these weights finite.
  bool weights_are_dead() const { return !scales_ && has_given_up(); }
  /// What a run that has given up ends with.
  std::string verdict() const;

 private:
  std::string skipped(double scale_before, std::int64_t step);

  bool scales_, steps_early_;
  double tokens_ = 1;
  optim::LossScaler scaler_;
  int skipped_in_a_row_;
};

}  // namespace ztrain::job
