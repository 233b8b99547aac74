#pragma once
// Runs a deck: data, steps, evaluation, checkpoints, metrics.

#include <string>

#include "train/inputs.hpp"
#include "train/run_end.hpp"

namespace ztrain::train {

/// Loops over the steps of a run. Owns the run and its parts, and gives each part its turn.
class Trainer {
 public:
  /// Collective over the session. Everything that can be wrong with deck, data, output folder or checkpoint
  /// is found here, before the first step, and thrown as AgreedError on every rank. The watchdog, to which
  /// the console's phases are progress, is told where in a step the run is.
  Trainer(const runtime::Session& session, telemetry::Console& console, telemetry::Watchdog& watchdog,
          config::Deck deck, std::string version);

  /// Trains to the end of the run, or until a signal that asks for it reaches any rank or run.max_minutes are
  /// over: then the step is finished and the state saved (unless checkpoint.interval is -1). A run that is
  /// complete is exported (checkpoint.export), also one that was complete before. Throws AgreedError when
  /// that fails, when training has diverged, and where a signal ended what is not to be saved.
  Ending run();

  const job::Worker& worker() const { return run_.worker; }

 private:
  void take_steps();
  bool step();
  void compute_step();
  void warn_of_masked_step();
  void behind_step();
  void evaluate();
  void keep_state();
  bool stops_early();
  void save_as_asked();

  telemetry::Watchdog& watchdog_;
  Run run_;
  TimeLimits limits_;  ///< rank 0's count
  Inputs inputs_;
  RunOutput output_;
  Audits audits_;
  Snapshots snapshots_;
  Saves saves_;
  RunEnd end_;
};

}  // namespace ztrain::train
