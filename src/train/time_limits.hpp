#pragma once
// Decides when a run ends though it has steps left: after run.max_minutes, and before the end of its SLURM
// allocation, which would lose everything since the last checkpoint.

#include <cstdint>
#include <optional>
#include <string>

#include "config/deck.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::train {

/// Mean time of the steps of a process. Each new step has a weight of one tenth.
class MeanStep {
 public:
  /// The second step replaces the first one, which also touches memory for the first time.
  void add(double seconds);
  double seconds() const { return seconds_; }  ///< 0 before the first step

 private:
  std::int64_t steps_ = 0;
  double seconds_ = 0;
};

class TimeLimits {
 public:
  /// allocation_end is in seconds since 1970, or nothing. A run that saves nothing has nothing to do before
  /// the allocation ends, and goes on until SLURM ends it.
  TimeLimits(const config::Deck& deck, std::optional<double> allocation_end);

  /// Records what the end of a run must leave time for: the longest turn so far, which is a step with its
  /// evaluation and save, and then the longest save. Saves in the background need two: the last save waits
  /// for one that is still being written.
  void turn_took(double seconds);
  void save_took(double seconds);
  /// Sets the time of the longest save until one has been measured.
  void expect_save(double seconds) { expected_save_ = seconds; }

  /// Returns this rank's report to the others. Rank 0 counts the time.
  runtime::Report report(const runtime::Session& session, bool failed) const;

  /// Returns the reason that the run ends: time_is_up or allocation_ends.
  std::string why(runtime::Stop stop) const;

  /// Returns whether run.max_minutes are over. session_lasts is in seconds.
  bool minutes_are_over(double session_lasts) const;
  /// Returns whether another step could end too late for a save before the allocation ends. clock is in
  /// seconds since 1970.
  bool allocation_ends(double clock) const;
  /// Returns the seconds until the first of both limits; nothing if there is none.
  std::optional<double> seconds_left(double session_lasts, double clock) const;

  /// Returns the seconds that are kept free before the end of an allocation.
  double margin() const;

 private:
  double most_minutes_ = 0;  ///< 0: no limit
  double least_margin_ = 0;
  int saves_at_end_ = 1;
  std::optional<double> allocation_end_;
  double longest_turn_ = 0, longest_save_ = 0, expected_save_ = 0;
};

}  // namespace ztrain::train
