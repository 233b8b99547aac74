#pragma once
// How a run ends: by time, a signal, a rank that hangs, gradients that are not finite, or its last step.

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "telemetry/watchdog.hpp"
#include "train/saves.hpp"

namespace ztrain::train {

/// How a run that has not failed came to its end.
enum class Ending : std::uint8_t {
  complete,
  time_is_up,  ///< run.max_minutes
  asked_to     ///< by a signal or SLURM's time limit; the state is saved, and the same command goes on
};

/// Finds out that a run has to end, and ends it: saves, exports, and says why. Owns what asked the run to
/// end. The other parts outlive it.
class RunEnd {
 public:
  RunEnd(Run& run, const TimeLimits& limits, RunOutput& output, Snapshots& snapshots, Saves& saves)
      : run_(run), limits_(limits), output_(output), snapshots_(snapshots), saves_(saves) {}

  /// Collective. While the result lives, the watchdog asks all ranks where they are before it ends the job,
  /// by files in run.output. Returns null for one rank and without a timeout. If some rank cannot write
  /// there, it warns and returns null, and each rank tells of itself alone.
  std::unique_ptr<telemetry::Watchdog::Exchange> exchange_places(telemetry::Watchdog& watchdog) const;
  /// Passes on what files in run.output ask for, as if this process had got a signal. Rank 0 looks, at most
  /// once a second, and prints who had made the file; the others do nothing.
  void look_for_requests();
  /// Prints at rank 0 that a signal ends the run. A rank that the signal reaches alone tells the others after
  /// the step.
  void notice(const runtime::Signals::Kind& signal) const;
  /// Collective, after a step. Returns the requests of all ranks. `writes` says that this rank is saving.
  runtime::Requests hear(bool writes) const;
  /// Notes and prints why the run stops before its last step.
  void note_stop(const runtime::Requests& asked);
  /// Collective. Returns whether the run is to end because gradients are not finite. The optimizer has left
  /// the state as it was, so the run ends with the state before the step, and the step is still to come.
  bool stops_at_non_finite();
  /// Collective, after the last step. Throws what Trainer::run throws.
  Ending end();

 private:
  [[noreturn]] void end_failed(const std::string& failure);
  void require_end() const;
  void set_dead_aside() const;
  void report_best() const;
  void export_model_at_end() const;
  Ending ending_of_stop() const;

  Run& run_;
  const TimeLimits& limits_;
  RunOutput& output_;
  Snapshots& snapshots_;
  Saves& saves_;
  double looked_ = 0;           ///< time of the last look for files that ask for something
  std::set<std::string> kept_;  ///< such files that cannot be removed, of which the run has warned
  std::string ended_by_;  ///< reason that the run was asked to end: a signal, or the end of the allocation
};

}  // namespace ztrain::train
