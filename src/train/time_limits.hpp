#pragma once
// When a run ends: what its steps take, and when it ends itself though it has steps left: after
// run.max_minutes, and ahead of the end of the SLURM allocation in which it runs, whose end would lose what
// came after the last checkpoint.

#include <cstdint>
#include <optional>
#include <string>

#include "config/deck.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::train {

/// What a step takes, from all of a process: later ones count more, each a tenth of what came before it.
class MeanStep {
 public:
  /// The first step of a process also touches memory for the first time: the second one takes its place.
  void add(double seconds);
  double seconds() const { return seconds_; }  ///< 0 before the first

 private:
  std::int64_t steps_ = 0;
  double seconds_ = 0;
};

class TimeLimits {
 public:
  /// allocation_end: in seconds since 1970; nothing where there is none. Runs that save nothing have nothing
  /// to do ahead of it, and go on until SLURM ends them.
  TimeLimits(const config::Deck& deck, std::optional<double> allocation_end);

  /// What the end has to hold once more: the longest turn so far, which is a step and what may come behind it
  /// (an evaluation, a save), and then the longest save. It holds two saves if saves are written behind
  /// training: the last save waits for one that is still being written.
  void turn_took(double seconds);
  void save_took(double seconds);
  /// Stands for the longest save until one has been measured.
  void expect_save(double seconds) { expected_save_ = seconds; }

  /// Of this rank, for the others: rank 0 counts the time.
  runtime::Report report(const runtime::Session& session, bool failed) const;

  /// What ends the run: time_is_up or allocation_ends.
  std::string why(runtime::Stop stop) const;

  /// session_lasts: in seconds.
  bool minutes_are_over(double session_lasts) const;
  /// clock: seconds since 1970. Whether another step may come too close to the end to save behind it.
  bool allocation_ends(double clock) const;
  /// The first of both limits, from now on; nothing where there is none.
  std::optional<double> seconds_left(double session_lasts, double clock) const;

  /// Seconds that are kept free before the end of an allocation.
  double margin() const;

 private:
  double most_minutes_ = 0;  ///< 0: no limit
  double least_margin_ = 0;
  int saves_at_end_ = 1;
  std::optional<double> allocation_end_;
  double longest_turn_ = 0, longest_save_ = 0, expected_save_ = 0;
};

}  // namespace ztrain::train
