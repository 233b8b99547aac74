#include "job/skipped_steps.hpp"

#include <fmt/format.h>

#include <bit>

#include "config/validate/validate.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::job {
namespace {

constexpr int most_skipped_steps = 20;

optim::LossScalerOptions options_of(const config::Deck& deck) {
  const config::LossScaling& l = deck.loss_scaling;
  if (deck.precision.parameters != DType::f16) return {.scale = 1};
  return {l.scale,
          static_cast<int>(l.initial_scale_power),
          static_cast<int>(l.window),
          static_cast<int>(l.hysteresis),
          l.consecutive_hysteresis,
          l.min_scale};
}

optim::LossScaler scaler_of(const config::Deck& deck, const optim::LossScalerState* saved) {
  return saved ? optim::LossScaler(options_of(deck), *saved) : optim::LossScaler(options_of(deck));
}

}  // namespace

SkippedSteps::SkippedSteps(const config::Deck& deck, const optim::LossScalerState* saved, int skipped)
    : scales_(deck.precision.parameters == DType::f16),
      steps_early_(deck.optimizer.during_backward),
      scaler_(scaler_of(deck, saved)),
      skipped_in_a_row_(skipped) {
  const std::int64_t tokens = config::tokens_per_step(deck) / config::data_parallel_degree(deck);
  if (scales_) tokens_ = static_cast<double>(std::bit_floor(static_cast<std::uint64_t>(tokens)));
}

std::string SkippedSteps::after_step(bool found_inf, std::int64_t step) {
  if (found_inf && steps_early_)
    throw runtime::AgreedError(fmt::format(
        "step {}: the gradient norm is not finite, and with optimizer.during_backward units had been stepped "
        "before that was known: this state is of no use, and is not saved. Resume from the last checkpoint, "
        "with a lower optimizer.lr, or without optimizer.during_backward, which then skips such steps",
        step));
  const double before = scaler_.scale();
  scaler_.update(found_inf);
  if (found_inf) return skipped(before, step);
  skipped_in_a_row_ = 0;
  return scaler_.scale() == before
             ? ""
             : fmt::format("step {}: the loss scale rises from {} to {}\n", step, before, scaler_.scale());
}

bool SkippedSteps::diverging() const {
  return skipped_in_a_row_ >= most_skipped_steps && scaler_.at_minimum();
}

bool SkippedSteps::diverged_at_end() const {
  return scales_ ? diverging() : skipped_in_a_row_ > 1;
}

bool SkippedSteps::has_given_up() const {
  return skipped_in_a_row_ >= most_skipped_steps && !(scales_ && scaler_.dynamic());
}

std::string SkippedSteps::verdict() const {
  return fmt::format(
      "{} steps in a row had gradients that are not finite: training has diverged. Start anew with a lower "
      "optimizer.lr or a longer schedule.warmup{}",
      skipped_in_a_row_, scales_ ? ", or a lower loss_scaling.scale" : "");
}

std::string SkippedSteps::skipped(double scale_before, std::int64_t step) {
  ++skipped_in_a_row_;
  std::string text = fmt::format("step {}: the gradient norm is not finite; the step is skipped", step);
  if (!scales_ || !scaler_.dynamic()) return text + "\n";
  if (scaler_.scale() != scale_before)
    return text + fmt::format(", and the loss scale falls from {} to {}\n", scale_before, scaler_.scale());
  if (!scaler_.at_minimum())
    return text + fmt::format("; the loss scale stays at {} (loss_scaling.hysteresis)\n", scale_before);
  return text + fmt::format(
                    "; warning: the loss scale is at loss_scaling.min_scale ({}) and cannot fall further: "
                    "lower that, use bf16, or start anew with a lower optimizer.lr\n",
                    scale_before);
}

}  // namespace ztrain::job
