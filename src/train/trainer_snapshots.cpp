// Snapshots in the memory of the nodes (checkpoint.memory_copies), between checkpoints.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.hpp"
#include "base/text.hpp"
#include "checkpoint/neighbours/node_folder.hpp"
#include "checkpoint/rank_group.hpp"
#include "checkpoint/saving.hpp"
#include "config/validate/validate.hpp"
#include "job/require_memory.hpp"
#include "job/weights.hpp"
#include "train/trainer.hpp"

namespace ztrain::train {

/// Before a checkpoint is looked for: a snapshot that is newer becomes one.
void Trainer::open_snapshots() {
  const bool resumes = deck_.checkpoint.resume == "auto";
  if (deck_.checkpoint.memory_copies == 0) {
    const std::int64_t bytes =
        resumes && session_.rank() == 0
            ? checkpoint::bytes_of_run(deck_.checkpoint.memory_folder, config::checkpoint_folder(deck_))
            : 0;
    if (bytes > 0)
      console_.print(
          fmt::format("warning: this run has snapshots in {} ({} on this node), which are not looked at: set "
                      "checkpoint.memory_copies = 1 to go on from them, or remove them\n",
                      deck_.checkpoint.memory_folder, format_bytes(bytes)));
    return;
  }
  snapshots_.emplace(session_, console_, deck_, patience());
  if (resumes) snapshots_->publish_newest({});
}

/// The run has come back to what it could: those that were there are on disk by now, or nobody's.
void Trainer::clear_snapshots() {
  if (!snapshots_) return;
  snapshots_->clear();
  snapshots_->require_room(job::snapshot_bytes_of_node(session_, worker_.job(), deck_));
}

bool Trainer::snapshot_is_due() const {
  return snapshots_ && progress_.step % deck_.checkpoint.memory_interval == 0;
}

/// Only of a state from which training may go on. Where a checkpoint or the snapshot before is not complete
/// yet, the next interval tries again: training does not wait for it.
void Trainer::take_snapshot() {
  if (!doubt().empty() || under_way_ || snapshot_ || !audited()) return;
  const telemetry::Phase phase(console_, "copying the state");
  const double start = now();
  const auto turns = static_cast<int>(std::max<std::int64_t>(1, deck_.checkpoint.memory_interval / 2));
  const std::string failure = why_not_saved([&] {
    const auto& job = worker_.job();
    snapshots_->hold_again();
    checkpoint::Saving saving(snapshots_->folder(), progress_.step, job::place_of(job.load(), job.layout),
                              copied_state(),
                              job::to_metadata(progress_, deck_, data::identity_of(data_), version_),
                              {.node_of = snapshots_->ring().node_of(), .key = checkpoint::memory_key});
    snapshot_.emplace(std::move(saving), snapshots_->ring(), snapshots_->folder(), progress_.step, turns);
  });
  save_seconds_ += now() - start;
  if (!failure.empty()) warn_of_snapshot(progress_.step, failure);
}

void Trainer::warn_of_snapshot(std::int64_t step, const std::string& failure) {
  snapshot_.reset();
  console_.print(fmt::format(
      "step {}: warning: there is no snapshot in the nodes' memory: {}; the next is tried in {} steps\n",
      step, failure, deck_.checkpoint.memory_interval));
}

/// Behind a step, where this rank and all others have done what they do by themselves.
void Trainer::advance_snapshot() {
  const telemetry::Phase phase(console_, "bringing the state to other nodes");
  const double start = now();
  bool complete = false;
  const std::string failure = why_not_saved([&] { complete = snapshot_->advance(); });
  save_seconds_ += now() - start;
  if (complete || !failure.empty()) end_snapshot(failure);
}

/// Waits for what is under way, if anything is: its room is wanted.
void Trainer::finish_snapshot() {
  if (!snapshot_) return;
  telemetry::Phase phase(console_, "waiting for the snapshot in the nodes' memory");
  const double start = now();
  std::int64_t told = -1;  // saying the same again would pass for progress
  const std::string failure = why_not_saved([&] {
    snapshot_->finish([&] {
      if (const std::int64_t done = snapshot_->done(); std::exchange(told, done) != done)
        phase.at(format_bytes(done));
    });
  });
  save_seconds_ += now() - start;
  wait_seconds_ += now() - start;
  end_snapshot(failure);
}

/// Of the first a line says that it is there; of the others only where they fail.
void Trainer::end_snapshot(const std::string& failure) {
  const std::int64_t step = snapshot_->step(), bytes = snapshot_->bytes();
  snapshot_.reset();
  if (!failure.empty()) return warn_of_snapshot(step, failure);
  if (std::exchange(told_of_snapshots_, true)) return;
  console_.print(fmt::format(
      "step {}: a snapshot is in the memory of {} ({} by this rank), as every {} steps\n", step,
      count_text(snapshots_->ring().nodes(), "node"), format_bytes(bytes), deck_.checkpoint.memory_interval));
}

}  // namespace ztrain::train
