#include "train/snapshots.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.hpp"
#include "base/text.hpp"
#include "checkpoint/neighbours/node_folder.hpp"
#include "config/validate/validate.hpp"
#include "job/require_memory.hpp"
#include "job/weights.hpp"

namespace ztrain::train {

void Snapshots::open(const Patience& patience) {
  const bool resumes = run_.deck.checkpoint.resume == "auto";
  if (run_.deck.checkpoint.memory_copies == 0) {
    const std::int64_t bytes = resumes && run_.session.rank() == 0
                                   ? checkpoint::bytes_of_run(run_.deck.checkpoint.memory_folder,
                                                              config::checkpoint_folder(run_.deck))
                                   : 0;
    if (bytes > 0)
      run_.print(
          "warning: this run has snapshots in {} ({} on this node), which are not looked at: set "
          "checkpoint.memory_copies = 1 to go on from them, or remove them\n",
          run_.deck.checkpoint.memory_folder, format_bytes(bytes));
    return;
  }
  store_.emplace(run_.session, run_.console, run_.deck, patience);
  if (resumes) store_->publish_newest({});
}

void Snapshots::publish_newest(std::set<std::int64_t>& damaged) const {
  if (store_) damaged.erase(store_->publish_newest(damaged));
}

void Snapshots::clear() {
  if (!store_) return;
  store_->clear();
  store_->require_room(job::snapshot_bytes_of_node(run_.session, run_.worker.job(), run_.deck));
}

bool Snapshots::is_due() const {
  return store_ && run_.progress.step % run_.deck.checkpoint.memory_interval == 0;
}

void Snapshots::take() {
  if (!run_.doubt().empty() || snapshot_ || !audits_.copies_agree()) return;
  const telemetry::Phase phase(run_.console, "copying the state");
  const double start = now();
  const auto turns = static_cast<int>(std::max<std::int64_t>(1, run_.deck.checkpoint.memory_interval / 2));
  const std::string failure = run_.why_not_saved(snapshot_, [&] {
    const auto& job = run_.worker.job();
    store_->hold_again();
    checkpoint::Saving saving(store_->folder(), run_.progress.step, job::place_of(job.load(), job.layout),
                              audits_.copied_state(), run_.metadata(),
                              {.node_of = store_->ring().node_of(), .key = checkpoint::memory_key});
    snapshot_.emplace(std::move(saving), store_->ring(), store_->folder(), run_.progress.step, turns);
  });
  run_.clock.save += now() - start;
  if (!failure.empty()) warn(run_.progress.step, failure);
}

void Snapshots::remove() const {
  if (store_) store_->remove();
}

void Snapshots::warn(std::int64_t step, const std::string& failure) {
  snapshot_.reset();
  run_.print(
      "step {}: warning: there is no snapshot in the nodes' memory: {}; the next is tried in {} steps\n",
      step, failure, run_.deck.checkpoint.memory_interval);
}

void Snapshots::advance() {
  if (!snapshot_) return;
  const telemetry::Phase phase(run_.console, "bringing the state to other nodes");
  const double start = now();
  bool complete = false;
  const std::string failure = run_.why_not_saved(snapshot_, [&] { complete = snapshot_->advance(); });
  run_.clock.save += now() - start;
  if (complete || !failure.empty()) end_snapshot(failure);
}

void Snapshots::finish() {
  if (!snapshot_) return;
  telemetry::Phase phase(run_.console, "waiting for the snapshot in the nodes' memory");
  const double start = now();
  std::int64_t told = -1;  // repeating the same value would count as progress
  const std::string failure = run_.why_not_saved(snapshot_, [&] {
    snapshot_->finish([&] {
      if (const std::int64_t done = snapshot_->done(); std::exchange(told, done) != done)
        phase.at(format_bytes(done));
    });
  });
  run_.clock.save += now() - start;
  run_.clock.save_wait += now() - start;
  end_snapshot(failure);
}

/// Ends the snapshot under way. Prints a line for the first one, and later only for failures.
void Snapshots::end_snapshot(const std::string& failure) {
  const std::int64_t step = snapshot_->step(), bytes = snapshot_->bytes();
  snapshot_.reset();
  if (!failure.empty()) return warn(step, failure);
  if (std::exchange(told_, true)) return;
  run_.print("step {}: a snapshot is in the memory of {} ({} by this rank), as every {} steps\n", step,
             count_text(store_->ring().nodes(), "node"), format_bytes(bytes),
             run_.deck.checkpoint.memory_interval);
}

}  // namespace ztrain::train
