#pragma once
// Runs a deck: data, steps, evaluation, checkpoints, metrics.

#include <string>

#include "train/inputs.hpp"
#include "train/run_end.hpp"

namespace ztrain::train {

/// Loops over the steps of a run. Owns the run and its parts, and gives each part its turn.
class Trainer {
 public:
  /// Collective over the session. Finds everything that can be wrong with deck, data, output folder or
  /// checkpoint before the first step, and throws it as AgreedError on every rank. Phases of the console are
  /// progress to the watchdog, which is told where in a step the run is.
  Trainer(const runtime::Session& session, telemetry::Console& console, telemetry::Watchdog& watchdog,
          config::Deck deck, std::string version);

  /// Trains until the last step, until a signal reaches any rank, or until run.max_minutes are over. If it
  /// stops early, it finishes the step and saves the state (unless checkpoint.interval is -1). Exports a
  /// complete run (checkpoint.export), even if it was complete before. Throws AgreedError if a save or export
  /// fails, if training has diverged, and if a signal ends a run that is not to be saved.
  Ending run();

  const job::Worker& worker() const { return run_.worker; }

 private:
  void take_steps();
  bool step();
  void compute_step();
  void warn_of_masked_step();
  void after_step();
  void evaluate();
  void keep_state();
  bool stops_early();
  void save_as_asked();

  telemetry::Watchdog& watchdog_;
  Run run_;
  TimeLimits limits_;  ///< counts time at rank 0
  Inputs inputs_;
  RunOutput output_;
  Audits audits_;
  Snapshots snapshots_;
  Saves saves_;
  RunEnd end_;
};

}  // namespace ztrain::train
