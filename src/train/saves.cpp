#include "train/saves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.hpp"
#include "checkpoint/rank_group.hpp"
#include "config/validate/validate.hpp"
#include "job/weights.hpp"

namespace ztrain::train {

bool Saves::is_due() const {
  const std::int64_t interval = run_.deck.checkpoint.interval;
  return is_owed_ || (interval > 0 && run_.progress.step % interval == 0);
}

void Saves::save_or_wait() {
  if (!audits_.copies_agree()) return;
  const std::string why_not = run_.doubt();
  if (why_not.empty() || (is_owed_ && run_.skipped_steps.skipped_in_a_row() == 0)) return save_or_go_on();
  if (!std::exchange(is_owed_, true))
    run_.print(
        "step {}: no checkpoint is written: {}, and older checkpoints stay; one follows the next "
        "step that is not skipped\n",
        run_.progress.step, why_not);
}

void Saves::save_as_asked() {
  if (run_.deck.checkpoint.interval < 0)
    run_.console.print("SIGUSR2: nothing is saved: checkpoint.interval = -1\n");
  else if (known_.newest.step == run_.progress.step)
    run_.print("SIGUSR2: step {} is saved already: {}\n", run_.progress.step, known_.path);
  else if (under_way_ && under_way_->of.step == run_.progress.step)
    run_.print("SIGUSR2: step {} is being saved already\n", run_.progress.step);
  else
    save_or_wait();
}

void Saves::save_at_end() {
  finish_save();
  snapshots_.drop();  // The checkpoint is newer than the snapshot, and on disk.
  if (run_.deck.checkpoint.interval < 0 || known_.newest.step == run_.progress.step) return;
  if (!audits_.copies_agree() && known_.newest.step == run_.progress.step) return;
  const bool saved = known_.newest.optimizer_steps == run_.progress.optimizer_steps;
  if (saved ? run_.has_diverged() : run_.skipped_steps.weights_are_dead() && run_.progress.proven_step >= 0)
    return;
  if (const std::string failure = save(); !failure.empty()) throw runtime::AgreedError(failure);
  warn_of_doubt();
}

/// Warns instead of failing: training is worth more than a checkpoint, and somebody may make room meanwhile.
void Saves::save_or_go_on() {
  wait("checkpoint.interval made another due");
  is_owed_ = false;
  const std::string failure = config::saves_behind_training(run_.deck) ? begin_save() : save();
  if (failure.empty()) return warn_of_doubt();
  warn_of_failure(run_.progress.step, failure, next_save());
}

void Saves::wait(const char* what_was_due) {
  snapshots_.finish();
  if (!under_way_) return;
  const std::int64_t waited_for = under_way_->of.step;
  const double waited = finish_save();
  run_.clock.save_wait += waited;
  run_.print(
      "step {}: training stood still for {:.1f} s: the checkpoint of step {} was being written when {}\n",
      run_.progress.step, waited, waited_for, what_was_due);
}

/// Returns the text that says when the next checkpoint is due.
std::string Saves::next_save() const {
  const std::int64_t interval = run_.deck.checkpoint.interval;
  if (interval <= 0) return "at its end";
  return fmt::format("in {} steps", interval - run_.progress.step % interval);
}

/// `again` says when the next checkpoint is written.
void Saves::warn_of_failure(std::int64_t step, const std::string& failure, const std::string& again) {
  run_.print("step {}: warning: no checkpoint is written: {}; the run goes on, and tries again {}; {}\n",
             step, failure, again,
             known_.newest.step < 0 ? "it has none yet"
                                    : fmt::format("its last one is of step {}", known_.newest.step));
}

void Saves::warn_of_doubt() {
  if (!run_.doubt().empty())
    run_.print("step {}: warning: {}; training may not go on from this checkpoint\n", run_.progress.step,
               run_.doubt());
}

/// Collective. Makes a Saving, in which the ranks agree on everything before they write.
checkpoint::Saving Saves::saving(std::vector<checkpoint::StateShard> states) {
  const auto& job = run_.worker.job();
  checkpoint::SaveOptions all = options();
  all.hold = [this] { output_.hold_checkpoints_again(); };
  return checkpoint::Saving(config::checkpoint_folder(run_.deck), run_.progress.step,
                            job::place_of(job.load(), job.layout), std::move(states), run_.metadata(), all);
}

checkpoint::SaveOptions Saves::options() const {
  const config::Checkpoint& c = run_.deck.checkpoint;
  const std::int64_t exported = c.export_from == "best" ? 1 : 0;
  return {.files = static_cast<int>(c.files),
          .keep = static_cast<int>(c.keep),
          .keep_every = c.keep_every,
          .keep_best = static_cast<int>(std::max(c.keep_best, exported)),
          .validation_of = job::validation_identity(run_.deck, data::identity_of(run_.data)),
          .proven_step = run_.progress.proven_step,
          .damaged = known_.damaged};
}

bool Saves::needs_losses() const {
  return options().keep_best > 0;
}

std::string Saves::best() const {
  return run_.session.from_rank_0(run_.session.agree("looking for the best checkpoint", [&]() -> std::string {
    if (run_.session.rank() != 0) return "";
    return checkpoint::best(config::checkpoint_folder(run_.deck), options()).value_or("").string();
  }));
}

/// Returns the newest checkpoint if somebody has removed it, at rank 0; or "".
std::string Saves::lost_checkpoint() const {
  std::error_code unknown;
  const bool lost = run_.session.rank() == 0 && !known_.path.empty() &&
                    !std::filesystem::exists(known_.path, unknown) && !unknown;
  return lost ? known_.path : "";
}

/// Saves while training stands still. Returns why no checkpoint could be written, or "".
std::string Saves::save() {
  telemetry::Phase phase(run_.console, "saving a checkpoint");
  const double start = now();
  const std::string lost = lost_checkpoint();
  std::int64_t bytes = 0;
  checkpoint::Saved saved;
  const std::string failure = run_.why_not_saved(under_way_, [&] {
    checkpoint::Saving whole = saving(job::saved_of(run_.worker.state(true), run_.worker.job().tensors));
    do
      whole.work([&](std::int64_t done, std::int64_t total) {
        bytes = total;
        phase.at(share_of(done, total, "written"));
      });
    while (!whole.exchange());
    saved = whole.saved();
  });
  const double seconds = now() - start;
  run_.clock.save += seconds;
  if (!failure.empty()) return failure;
  limits_.save_took(seconds);
  note_saved({run_.progress.step, run_.progress.optimizer_steps},
             fmt::format("{} by this rank in {:.1f} s", format_bytes(bytes), seconds), lost, saved.warning);
  return "";
}

/// Begins a save, for which training stands still while the state is copied. Returns why it could not, or "".
std::string Saves::begin_save() {
  ASSERT(!under_way_, "step {}: the copy of the state is still being written", run_.progress.step);
  const telemetry::Phase phase(run_.console, "copying the state");
  const double start = now();
  const std::string lost = lost_checkpoint();
  const std::string failure = run_.why_not_saved(under_way_, [&] {
    under_way_.emplace(saving(audits_.copied_state()),
                       SavedState{run_.progress.step, run_.progress.optimizer_steps}, start, lost);
  });
  run_.clock.save += now() - start;
  return failure;
}

void Saves::advance() {
  if (!under_way_) return;
  const double start = now();
  bool complete = false;
  const std::string failure = run_.why_not_saved(under_way_, [&] { complete = under_way_->save.advance(); });
  const double seconds = now() - start;
  run_.clock.save += seconds;
  under_way_->stalled += seconds;
  if (complete || !failure.empty()) end_save(failure, next_save());
}

/// Waits for the save under way, if any. Returns the seconds that it waited.
double Saves::finish_save() {
  if (!under_way_) return 0;
  telemetry::Phase phase(run_.console, "waiting for the checkpoint of step", under_way_->of.step);
  const double start = now();
  const checkpoint::BackgroundSave& save = under_way_->save;
  std::int64_t told = -1;  // repeating the same value would count as progress
  const std::string failure = run_.why_not_saved(under_way_, [&] {
    under_way_->save.finish([&] {
      if (const std::int64_t done = save.written(); std::exchange(told, done) != done)
        phase.at(share_of(done, save.bytes(), "written"));
    });
  });
  const double seconds = now() - start;
  run_.clock.save += seconds;
  under_way_->stalled += seconds;
  end_save(failure, "now");
  return seconds;
}

void Saves::finish_of_failed() {
  snapshots_.drop();
  try {
    finish_save();
  } catch (const runtime::AgreedError&) {
    under_way_.reset();
  }
}

void Saves::end_save(const std::string& failure, const std::string& again) {
  const SavedState of = under_way_->of;
  const std::string how =
      fmt::format("{} by this rank in {:.1f} s, for {:.2f} s of which training stood still",
                  format_bytes(under_way_->save.bytes()), now() - under_way_->began, under_way_->stalled);
  if (failure.empty()) {
    const auto own = static_cast<std::int64_t>(1e6 * under_way_->save.seconds());
    limits_.save_took(1e-6 *
                      static_cast<double>(std::ranges::max(checkpoint::Group::world().all_gather(own))));
  }
  const std::string lost = under_way_->lost, warning = under_way_->save.saved().warning;
  under_way_.reset();
  if (!failure.empty()) return warn_of_failure(of.step, failure, again);
  note_saved(of, how, lost, warning);
  if (run_.progress.optimizer_steps > of.optimizer_steps)
    run_.progress.proven_step = std::max(run_.progress.proven_step, of.step);
}

void Saves::note_saved(const SavedState& of, const std::string& how, const std::string& lost,
                       const std::string& warning) {
  known_.damaged.erase(of.step);
  known_.newest = of;
  known_.path = fmt::format("{}/step_{}", config::checkpoint_folder(run_.deck), of.step);
  // HDF5 is first used here, and its memory is outside the plan too.
  output_.measure_outside();
  run_.print("step {}: checkpoint {} ({})\n", of.step, known_.path, how);
  if (!lost.empty())
    run_.print("step {}: warning: {}, the checkpoint before, is gone; was its folder removed?\n", of.step,
               lost);
  if (!warning.empty()) run_.print("step {}: warning: {}\n", of.step, warning);
}

}  // namespace ztrain::train
