#pragma once
// What varies from step to step. One small buffer on the device: kernels read it, so the step's Program (and
// a captured graph of it) never changes.

namespace ztrain {

struct StepScalars {
  // Written by the host before the step.
  double learning_rate = 0;
  double bias_correction1 = 1;  ///< 1 - beta1^t, t the number of optimizer steps taken including this one
  double bias_correction2 = 1;  ///< 1 - beta2^t
  double max_norm = 0;          ///< global gradient-norm bound; 0: no clipping
  double optimizer_step = 0;    ///< optimizer steps taken before this one
  double loss_scale = 1;  ///< the loss gradient is multiplied by this; gradient_multiplier divides it out
  // Written on the device during the step.
  double loss = 0;          ///< weighted negative log-likelihood per valid token, over the whole global batch
  double valid_tokens = 0;  ///< global sum of loss weights of the step
  double gradient_norm = 0;  ///< global L2 norm of the mean gradient, before clipping
  double gradient_multiplier =
      0;  ///< what each summed gradient element is multiplied by: clip / valid_tokens / loss_scale
  /// Not 0: the optimizer selects the old state. 1: the norm is not finite. rows_left_out: some rows had no
  /// room on the way to other ranks' experts.
  double found_inf = 0;

  static constexpr double rows_left_out = 2;

  /// The gradient_multiplier of a step that clips nothing, once valid_tokens is known.
  constexpr double unclipped_multiplier() const {
    return valid_tokens == 0 ? 0 : 1 / valid_tokens / loss_scale;
  }
  /// Whether steps that were taken by unclipped_multiplier(), before the norm was known, are those of the
  /// norm.
  bool unclipped_steps_stand() const {
    return found_inf == 0 && gradient_multiplier == unclipped_multiplier();
  }
};

}  // namespace ztrain
