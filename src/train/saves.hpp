#pragma once
// When a run writes checkpoints, and how: at once, or behind training.

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

/// The state that a checkpoint holds.
struct SavedState {
  std::int64_t step = -1;
  std::int64_t optimizer_steps = -1;  ///< how many its weights have behind them
};

/// The checkpoints that a run knows of.
struct Checkpoints {
  SavedState newest;               ///< of this run
  std::string path;                ///< of the newest
  std::set<std::int64_t> damaged;  ///< steps of checkpoints that were passed over
};

/// A checkpoint that is written behind training.
struct SaveUnderWay {
  SaveUnderWay(checkpoint::Saving saving, SavedState what, double started, std::string before)
      : save(std::move(saving)),
        of(what),
        began(started),
        stalled(now() - started),
        lost(std::move(before)) {}

  checkpoint::BackgroundSave save;
  SavedState of;
  double began;      ///< when training stopped for it, in seconds of now()
  double stalled;    ///< seconds for which training has stood still
  std::string lost;  ///< the checkpoint before, where it is gone; else ""
};

/// Writes the checkpoints of a run and says what became of them. Owns what is known of them, and the save
/// that is under way. The other parts outlive it.
class Saves {
 public:
  Saves(Run& run, RunOutput& output, TimeLimits& limits, Audits& audits, Snapshots& snapshots)
      : run_(run), output_(output), limits_(limits), audits_(audits), snapshots_(snapshots) {}

  void begin_with(Checkpoints known) { known_ = std::move(known); }
  const SavedState& newest() const { return known_.newest; }
  const std::string& path() const { return known_.path; }

  /// A save is due by checkpoint.interval, or because an earlier one had to wait.
  bool is_due() const;
  bool is_under_way() const { return under_way_.has_value(); }
  bool works() const { return under_way_ && under_way_->save.works(); }
  /// Collective. Saves, or lets a later step be saved if there is doubt about the weights. That costs at most
  /// the place in the data, because skipped steps change no weights. Weights without a validation loss wait
  /// for one step: if it is taken, their gradients are finite, and the validation data may be the cause.
  void save_or_wait();
  /// Collective. Saves as SIGUSR2 asks, while the run goes on.
  void save_as_asked();
  /// Collective. Goes on with what is under way, once no rank works on its part by itself.
  void advance();
  /// Collective. Waits for snapshot and save, which take the room for a copy of the state until they end.
  void wait(const char* what_was_due);
  /// Collective. Saves the state with which the run ends. Weights that a checkpoint has already are not saved
  /// again for a place in the data from which they do not go on, nor dead ones beside a checkpoint that
  /// trains. A run that stops early is saved with its skipped steps, which the job after it goes on counting.
  void save_at_end();
  /// Ends the save under way of a run that has failed. Drops an error of that save, since the run has its
  /// own.
  void finish_of_failed();

 private:
  void save_or_go_on();
  std::string next_save() const;
  void warn_of_failure(std::int64_t step, const std::string& failure, const std::string& again);
  void warn_of_doubt();
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
