#pragma once
// Runs a deck: start, data, steps, evaluation, checkpoints, metrics.

#include <cstdint>
#include <string>

#include "data/rows/batch_part.hpp"
#include "job/evaluation.hpp"
#include "train/run.hpp"
#include "train/run_end.hpp"
#include "train/saves.hpp"
#include "train/step_profile.hpp"

namespace ztrain::train {

/// Gives a run's steps their samples. Reads the samples of each step between the steps, and asks for the next
/// ones while the device computes. Owns this rank's part of a micro-batch. The run outlives it.
class Inputs {
 public:
  explicit Inputs(Run& run);

  /// Writes the samples of the next step to the worker's inputs. Throws Error if they cannot be read.
  void fill();
  /// Does the same, but keeps a failure for the exchange of requests after the step. All ranks then save the
  /// step that they have done.
  void fill_next();
  /// Asks the file system to read the samples of the step after the next one.
  void read_ahead() const;

 private:
  std::int64_t first_sample(std::int64_t samples, std::int64_t micro_batch) const;

  Run& run_;
  data::BatchPart part_;
  std::vector<std::int64_t> places_;  ///< of a micro-batch in the teacher's file; empty without a teacher
};

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
  bool evaluation_is_due() const;
  void evaluate();
  void note_loss(const job::Losses& losses);
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
  StepProfile profile_;
};

/// Collective. Does what comes before a run's first step: describes the run, holds its folders, and sets its
/// state: from the newest sound checkpoint or snapshot, from the weights that model.from names, or drawn.
/// Then opens the files of run.output, and checks that there is room for a checkpoint. Throws AgreedError.
void start(Run& run, TimeLimits& limits, RunOutput& output, Snapshots& snapshots, Saves& saves);

}  // namespace ztrain::train
