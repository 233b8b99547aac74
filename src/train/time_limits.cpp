#include "train/time_limits.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.hpp"
#include "config/validate/validate.hpp"

namespace ztrain::train {

void MeanStep::add(double seconds) {
  ++steps_;
  seconds_ = steps_ <= 2 ? seconds : 0.9 * seconds_ + 0.1 * seconds;
}

TimeLimits::TimeLimits(const config::Deck& deck, std::optional<double> allocation_end)
    : most_minutes_(deck.run.max_minutes),
      least_margin_(deck.run.end_margin),
      saves_at_end_(config::saves_behind_training(deck) ? 2 : 1) {
  if (deck.run.end_margin >= 0 && deck.checkpoint.interval >= 0) allocation_end_ = allocation_end;
}

void TimeLimits::turn_took(double seconds) {
  longest_turn_ = std::max(longest_turn_, seconds);
}

void TimeLimits::save_took(double seconds) {
  longest_save_ = std::max(longest_save_, seconds);
}

runtime::Report TimeLimits::report(const runtime::Session& session, bool failed) const {
  const bool first = session.rank() == 0;
  return {first && minutes_are_over(session.lasts()), first && allocation_ends(wall_clock()), failed};
}

std::string TimeLimits::why(runtime::Stop stop) const {
  return stop == runtime::Stop::allocation_ends ? fmt::format("the allocation ends within {:.0f} s", margin())
                                                : fmt::format("run.max_minutes = {}", most_minutes_);
}

bool TimeLimits::minutes_are_over(double session_lasts) const {
  return most_minutes_ > 0 && session_lasts >= 60 * most_minutes_;
}

bool TimeLimits::allocation_ends(double clock) const {
  return allocation_end_ && clock + margin() >= *allocation_end_;
}

std::optional<double> TimeLimits::seconds_left(double session_lasts, double clock) const {
  std::optional<double> left;
  if (most_minutes_ > 0) left = 60 * most_minutes_ - session_lasts;
  if (allocation_end_) {
    const double until_save = *allocation_end_ - margin() - clock;
    left = std::min(left.value_or(until_save), until_save);
  }
  if (left) *left = std::max(*left, 0.0);
  return left;
}

double TimeLimits::margin() const {
  return least_margin_ + longest_turn_ + saves_at_end_ * (longest_save_ > 0 ? longest_save_ : expected_save_);
}

}  // namespace ztrain::train
