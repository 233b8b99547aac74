#pragma once
// Decides when a run writes checkpoints, and writes them at once or in the background.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "checkpoint/background_save.hpp"
#include "train/snapshots.hpp"

namespace ztrain::train {

/// Identifies the state that a checkpoint holds.
struct SavedState {
  std::int64_t step = -1;
  std::int64_t optimizer_steps = -1;  ///< optimizer steps that its weights have taken
};

/// Checkpoints that a run knows of.
struct Checkpoints {
  SavedState newest;               ///< the newest of this run
  std::string path;                ///< path of the newest
  std::set<std::int64_t> damaged;  ///< steps of damaged checkpoints that were passed over
};

/// A checkpoint that is written in the background.
struct SaveUnderWay {
  SaveUnderWay(checkpoint::Saving saving, SavedState what, double started, std::string before)
      : save(std::move(saving)),
        of(what),
        began(started),
        stalled(now() - started),
        lost(std::move(before)) {}

  checkpoint::BackgroundSave save;
  SavedState of;
  double began;      ///< time at which training stopped for it, in seconds of now()
  double stalled;    ///< seconds for which training has stood still
  std::string lost;  ///< the previous checkpoint if somebody removed it; else ""
};

/// Writes the checkpoints of a run and reports what became of them. Owns what is known of them, and the save
/// under way. The other parts outlive it.
class Saves {
 public:
  Saves(Run& run, RunOutput& output, TimeLimits& limits, Audits& audits, Snapshots& snapshots)
      : run_(run), output_(output), limits_(limits), audits_(audits), snapshots_(snapshots) {}

  void begin_with(Checkpoints known) { known_ = std::move(known); }
  const SavedState& newest() const { return known_.newest; }
  const std::string& path() const { return known_.path; }

  /// Returns whether a save is due, by checkpoint.interval or because an earlier one had to wait.
  bool is_due() const;
  bool is_under_way() const { return under_way_.has_value(); }
  /// Returns whether checkpoints are compared by their validation loss, so that each needs one.
  bool needs_losses() const;
  /// Collective. Returns the checkpoint with the lowest validation loss, or "".
  std::string best() const;
  bool works() const { return under_way_ && under_way_->save.works(); }
  /// Collective. Saves, or saves after a later step if there is doubt about the weights. Nothing but the data
  /// cursor could be lost meanwhile, because skipped steps do not change weights. If the validation loss is
  /// not finite, it waits for one step: if that step is taken, the gradients are finite, and the validation
  /// data may be the cause.
  void save_or_wait();
  /// Collective. Saves as SIGUSR2 asks, while the run goes on.
  void save_as_asked();
  /// Collective. Advances the save under way, once no rank is at work on its part.
  void advance();
  /// Collective. Waits for the snapshot and the save under way, which need the copy of the state until they
  /// end.
  void wait(const char* what_was_due);
  /// Collective. Saves the state with which the run ends. Does not save weights again that a checkpoint has
  /// if only the data cursor differs, nor diverged weights beside a checkpoint that trains. If the run stops
  /// early, its count of skipped steps is saved too, and the next job continues the count.
  void save_at_end();
  /// Ends the save under way of a run that has failed. Drops that save's error, because the run has its own.
  void finish_of_failed();

 private:
  void save_or_go_on();
  std::string next_save() const;
  void warn_of_failure(std::int64_t step, const std::string& failure, const std::string& again);
  void warn_of_doubt();
  checkpoint::SaveOptions options() const;
  checkpoint::Saving saving(std::vector<checkpoint::StateShard> states);
  std::string lost_checkpoint() const;
  std::string save();
  std::string begin_save();
  double finish_save();
  void end_save(const std::string& failure, const std::string& again);
  void note_saved(const SavedState& of, const std::string& how, const std::string& lost,
                  const std::string& warning);

  Run& run_;
  RunOutput& output_;
  TimeLimits& limits_;
  Audits& audits_;
  Snapshots& snapshots_;
  bool is_owed_ = false;  ///< A save waits for the next step whose weights leave no doubt.
  Checkpoints known_;
  std::optional<SaveUnderWay> under_way_;
};

}  // namespace ztrain::train
