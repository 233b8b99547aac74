#pragma once
// Runs a deck: data, steps, evaluation, checkpoints, metrics.

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "checkpoint/background_save.hpp"
#include "checkpoint/neighbours/memory_snapshot.hpp"
#include "config/deck.hpp"
#include "data/datasets.hpp"
#include "data/rows/batch_part.hpp"
#include "data/sampler.hpp"
#include "job/skipped_steps.hpp"
#include "job/worker.hpp"
#include "telemetry/console.hpp"
#include "telemetry/metrics_file.hpp"
#include "telemetry/watchdog.hpp"
#include "train/copies.hpp"
#include "train/output_folder.hpp"
#include "train/report.hpp"
#include "train/snapshot_store.hpp"
#include "train/stragglers.hpp"
#include "train/time_limits.hpp"

namespace ztrain::train {

/// Reads and checks a deck against the session's ranks, and completes model.vocab_size from the data.
/// Collective.
struct Prepared {
  config::Deck deck;
  data::Datasets data;
};
Prepared prepare(const runtime::Session& session, telemetry::Console& console, config::Deck deck);

/// How a run that has not failed came to its end.
enum class Ending : std::uint8_t {
  complete,
  time_is_up,  ///< run.max_minutes
  asked_to     ///< by a signal or SLURM's time limit: it is saved, and the same command goes on
};

/// What a checkpoint is of.
struct SavedState {
  std::int64_t step = -1;
  std::int64_t optimizer_steps = -1;  ///< how many its weights have behind them
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

  const job::Worker& worker() const { return worker_; }

 private:
  Trainer(const runtime::Session& session, telemetry::Console& console, telemetry::Watchdog& watchdog,
          Prepared prepared, std::string version);
  Patience patience() const;
  void hold_folders();
  void prepare_for_saves();
  void open_snapshots();
  void clear_snapshots();
  void begin_output();
  void write_resolved_deck() const;
  std::vector<std::string> checkpoints_to_resume() const;
  bool resumes();
  void restore();
  void start_from_weights();
  void require_export() const;
  std::string try_checkpoint(const std::string& path);
  std::string load_checkpoint(const std::string& path, telemetry::Phase& phase);
  std::unique_ptr<telemetry::Watchdog::Exchange> exchange_places() const;
  void take_steps();
  std::string agreed(const std::string& failure) const;
  void print_last_line();
  bool step();
  void step_with_timeline();
  void measure_outside();
  void warn_of_masked_step();
  bool stops_at_non_finite();
  std::int64_t first_sample(std::int64_t samples, std::int64_t micro_batch) const;
  void fill_inputs();
  void fill_next_inputs();
  void read_ahead() const;
  void set_scalars();
  void report(const StepClock& clock);
  template <class Record>
  void write_metrics(const Record& record);
  double seconds_left() const;
  void evaluate_and_report();
  bool stops_early();
  void notice(const runtime::Signals::Kind& signal);
  void save_as_asked();
  void save_next();
  Ending ending_of_stop() const;
  void report_peak();
  void export_at_end();
  std::string doubt() const;
  bool is_complete() const;
  bool has_diverged() const;
  void save_or_wait();
  void save_at_end();
  void save_or_go_on();
  std::string next_save() const;
  void warn_of_failure(std::int64_t step, const std::string& failure, const std::string& again);
  void warn_of_doubt();
  void end_failed(const std::string& failure);
  void behind_step();
  bool audit_is_due() const;
  bool audited();
  void keep_state();
  bool is_taken_twice() const;
  void step_twice();
  void restore_kept();
  void go_back(std::int64_t at, const Corruption& found);
  void wait_for_save(const char* what_was_due);
  void require_end();
  void set_dead_aside();
  checkpoint::Saving saving(std::vector<checkpoint::StateShard> states);
  std::string why_not_saved(const std::function<void()>& work);
  std::string lost_checkpoint() const;
  std::string save();
  std::string begin_save();
  void advance_save();
  double finish_save();
  bool snapshot_is_due() const;
  void take_snapshot();
  void advance_snapshot();
  void finish_snapshot();
  void end_snapshot(const std::string& failure);
  void warn_of_snapshot(std::int64_t step, const std::string& failure);
  void finish_save_of_failed();
  std::vector<checkpoint::StateShard> copied_state();
  void end_save(const std::string& failure, const std::string& again);
  void note_saved(const SavedState& of, const std::string& how, const std::string& lost,
                  const std::string& warning);

  const runtime::Session& session_;
  telemetry::Console& console_;
  telemetry::Watchdog& watchdog_;
  std::optional<telemetry::Phase> preparing_;  ///< until the first step can be taken
  config::Deck deck_;
  std::string version_;
  data::Datasets data_;
  data::Sampler sampler_;
  RunFacts facts_;
  job::SkippedSteps skipped_steps_;
  job::Worker worker_;
  data::BatchPart part_;
  std::vector<HeldFolder> folders_;                ///< run.output, and last that of checkpoints; rank 0 alone
  std::optional<telemetry::MetricsFile> metrics_;  ///< rank 0 alone
  job::Progress progress_;
  std::int64_t steps_at_start_ = 0;
  std::set<std::int64_t> damaged_;         ///< steps of checkpoints that were passed over
  bool save_is_due_ = false;               ///< with the next step whose weights leave no doubt
  SavedState saved_state_;                 ///< of the newest checkpoint of this run
  std::string saved_;                      ///< that checkpoint
  std::optional<SaveUnderWay> under_way_;  ///< the next
  std::optional<SnapshotStore> snapshots_;
  std::optional<checkpoint::MemorySnapshot> snapshot_;  ///< under way
  bool told_of_snapshots_ = false;
  std::optional<job::Progress> kept_;  ///< of the copy of the state, where that is whole
  std::uint64_t kept_hash_ = 0;        ///< of that copy, where there are audits
  std::int64_t audited_step_ = -1;     ///< whose copies agree
  std::int64_t times_back_ = 0;
  std::int64_t outside_bytes_ = 0;  ///< measured after the first step and each save
  double data_seconds_ = 0;         ///< of filling the inputs
  double save_seconds_ = 0;         ///< since the last report
  double wait_seconds_ = 0;         ///< of these, for a save that was under way
  std::string failure_;             ///< of this rank, outside the computation: the run ends with what it has
  std::string ended_by_;            ///< what asked the run to end: a signal, or the end of the allocation
  std::string last_line_;           ///< of the last step, while it is not printed; rank 0 alone
  MeanStep mean_step_;
  Stragglers stragglers_;
  TimeLimits limits_;  ///< rank 0's count
  std::vector<runtime::Mesh::Sent> sent_before_;
};

}  // namespace ztrain::train
