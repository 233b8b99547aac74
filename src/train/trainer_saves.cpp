// When a run saves, and how: at once, or behind training.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.hpp"
#include "base/text.hpp"
#include "checkpoint/rank_group.hpp"
#include "checkpoint/saving.hpp"
#include "config/validate/validate.hpp"
#include "job/held_pieces.hpp"
#include "job/weights.hpp"
#include "train/trainer.hpp"

namespace ztrain::train {

/// Evaluation, audit and checkpoint, where they are due. The state may then be an older one.
void Trainer::behind_step() {
  const std::int64_t s = progress_.step;
  if (deck_.evaluation.interval > 0 && (s % deck_.evaluation.interval == 0 || is_complete()))
    evaluate_and_report();
  if (audit_is_due() && !audited()) return;
  if (is_complete()) return;  // the end is saved by run()
  const bool at_interval = deck_.checkpoint.interval > 0 && s % deck_.checkpoint.interval == 0;
  if (save_is_due_ || at_interval)
    save_or_wait();
  else if (snapshot_is_due())
    take_snapshot();
  if (audit_is_due()) keep_state();
}

/// Why training may not go on from these weights; "" where nothing speaks against it.
std::string Trainer::doubt() const {
  if (skipped_steps_.skipped_in_a_row() > 0) return "this step was skipped";
  return progress_.evaluation_failed ? "the validation loss is not finite" : "";
}

/// Waiting costs at most the place in the data: skipped steps leave the weights as they were. Weights without
/// a validation loss wait for one more step: where it is taken, the gradients are finite, and it may be the
/// validation data that make no loss.
void Trainer::save_or_wait() {
  if (!audited()) return;
  const std::string why_not = doubt();
  if (why_not.empty() || (save_is_due_ && skipped_steps_.skipped_in_a_row() == 0)) return save_or_go_on();
  if (!std::exchange(save_is_due_, true))
    console_.print(
        fmt::format("step {}: no checkpoint is written: {}, and older checkpoints stay; one follows the next "
                    "step that is not skipped\n",
                    progress_.step, why_not));
}

/// SIGUSR2 asks for a checkpoint now, of a run that goes on.
void Trainer::save_as_asked() {
  if (deck_.checkpoint.interval < 0)
    console_.print("SIGUSR2: nothing is saved: checkpoint.interval = -1\n");
  else if (saved_state_.step == progress_.step)
    console_.print(fmt::format("SIGUSR2: step {} is saved already: {}\n", progress_.step, saved_));
  else if (under_way_ && under_way_->of.step == progress_.step)
    console_.print(fmt::format("SIGUSR2: step {} is being saved already\n", progress_.step));
  else
    save_next();
}

/// The inputs of the step behind it are there already, and are others where the run has gone back. A rank
/// that cannot read those ends the run here: what it has would make a wrong step.
void Trainer::save_next() {
  const std::int64_t step = progress_.step;
  save_or_wait();
  if (progress_.step != step) session_.agree("reading the data", [&] { fill_inputs(); });
}

/// There is nothing to wait for. Weights that a checkpoint has already are not saved again for a place in the
/// data from which they do not go on, nor dead ones beside a checkpoint that trains. A run that stops early
/// is saved with its number of skipped steps, so that the job after it goes on counting.
void Trainer::save_at_end() {
  finish_save();
  snapshot_.reset();  // what follows is newer, and on disk
  if (deck_.checkpoint.interval < 0 || saved_state_.step == progress_.step) return;
  if (!audited() && saved_state_.step == progress_.step) return;
  const bool saved = saved_state_.optimizer_steps == progress_.optimizer_steps;
  if (saved ? has_diverged() : skipped_steps_.weights_are_dead() && progress_.proven_step >= 0) return;
  if (const std::string failure = save(); !failure.empty()) throw runtime::AgreedError(failure);
  warn_of_doubt();
}

/// Training is worth more than a checkpoint: whoever looks after the run can make room meanwhile.
void Trainer::save_or_go_on() {
  wait_for_save("this one was due (checkpoint.interval)");
  save_is_due_ = false;
  const std::string failure = config::saves_behind_training(deck_) ? begin_save() : save();
  if (failure.empty()) return warn_of_doubt();
  warn_of_failure(progress_.step, failure, next_save());
}

/// The room for a copy of the state is taken until then.
void Trainer::wait_for_save(const char* what_was_due) {
  finish_snapshot();
  if (!under_way_) return;
  const std::int64_t waited_for = under_way_->of.step;
  const double waited = finish_save();
  wait_seconds_ += waited;
  console_.print(fmt::format(
      "step {}: training stood still for {:.1f} s: the checkpoint of step {} was being written when {}\n",
      progress_.step, waited, waited_for, what_was_due));
}

/// When the next checkpoint is due.
std::string Trainer::next_save() const {
  const std::int64_t interval = deck_.checkpoint.interval;
  if (interval <= 0) return "at its end";
  return fmt::format("in {} steps", interval - progress_.step % interval);
}

/// again: when the next one is written.
void Trainer::warn_of_failure(std::int64_t step, const std::string& failure, const std::string& again) {
  console_.print(
      fmt::format("step {}: warning: no checkpoint is written: {}; the run goes on, and tries again {}; {}\n",
                  step, failure, again,
                  saved_state_.step < 0 ? "it has none yet"
                                        : fmt::format("its last one is of step {}", saved_state_.step)));
}

void Trainer::warn_of_doubt() {
  if (!doubt().empty())
    console_.print(fmt::format("step {}: warning: {}; training may not go on from this checkpoint\n",
                               progress_.step, doubt()));
}

/// Collective; all that ranks have to agree on before they write.
checkpoint::Saving Trainer::saving(std::vector<checkpoint::StateShard> states) {
  const auto& job = worker_.job();
  return checkpoint::Saving(config::checkpoint_folder(deck_), progress_.step,
                            job::place_of(job.load(), job.layout), std::move(states),
                            job::to_metadata(progress_, deck_, data::identity_of(data_), version_),
                            {.files = static_cast<int>(deck_.checkpoint.files),
                             .keep = static_cast<int>(deck_.checkpoint.keep),
                             .keep_every = deck_.checkpoint.keep_every,
                             .keep_best = static_cast<int>(deck_.checkpoint.keep_best),
                             .proven_step = progress_.proven_step,
                             .damaged = damaged_,
                             .hold = [this] { folders_.back().hold_again(); }});
}

/// Runs work, which is collective, on every rank: why this checkpoint could not be written, "" where nothing
/// has failed. After another error nobody may wait for what was under way.
std::string Trainer::why_not_saved(const std::function<void()>& work) {
  std::string failure;
  try {
    session_.agree("saving a checkpoint", [&] {
      try {
        work();
      } catch (const checkpoint::NotSaved& e) {
        failure = e.what();
      }
    });
  } catch (const runtime::AgreedError&) {
    under_way_.reset();
    snapshot_.reset();
    throw;
  }
  return failure;
}

/// Collective: a rank that cannot copy its state must not leave the others waiting.
std::vector<checkpoint::StateShard> Trainer::copied_state() {
  ASSERT(!under_way_ && !snapshot_, "step {}: the copy of the state is still being written", progress_.step);
  std::vector<checkpoint::StateShard> states;
  kept_.reset();
  try {
    checkpoint::Group::world().together([&] {
      states = worker_.copied_state();
      if (deck_.watchdog.audit_interval > 0) kept_hash_ = job::hash_of_copy(worker_);
    });
  } catch (const runtime::AgreedError& e) {
    throw checkpoint::NotSaved(e.what());
  }
  kept_ = progress_;
  return states;
}

/// The newest checkpoint, where somebody has removed it; at rank 0.
std::string Trainer::lost_checkpoint() const {
  std::error_code unknown;
  const bool lost =
      session_.rank() == 0 && !saved_.empty() && !std::filesystem::exists(saved_, unknown) && !unknown;
  return lost ? saved_ : "";
}

/// Training stands still. Why no checkpoint could be written; "" where one was.
std::string Trainer::save() {
  telemetry::Phase phase(console_, "saving a checkpoint");
  const double start = now();
  const std::string lost = lost_checkpoint();
  std::int64_t bytes = 0;
  checkpoint::Saved saved;
  const std::string failure = why_not_saved([&] {
    checkpoint::Saving whole = saving(worker_.state(true));
    do
      whole.work([&](std::int64_t done, std::int64_t total) {
        bytes = total;
        phase.at(share_of(done, total, "written"));
      });
    while (!whole.exchange());
    saved = whole.saved();
  });
  const double seconds = now() - start;
  save_seconds_ += seconds;
  if (!failure.empty()) return failure;
  limits_.save_took(seconds);
  note_saved({progress_.step, progress_.optimizer_steps},
             fmt::format("{} by this rank in {:.1f} s", format_bytes(bytes), seconds), lost, saved.warning);
  return "";
}

/// Training stands still while the state is copied. Why that is all; "" where it is being written.
std::string Trainer::begin_save() {
  const telemetry::Phase phase(console_, "copying the state");
  const double start = now();
  const std::string lost = lost_checkpoint();
  const std::string failure = why_not_saved([&] {
    under_way_.emplace(saving(copied_state()), SavedState{progress_.step, progress_.optimizer_steps}, start,
                       lost);
  });
  save_seconds_ += now() - start;
  return failure;
}

/// Behind a step, where this rank and all others have done what they do by themselves.
void Trainer::advance_save() {
  const double start = now();
  bool complete = false;
  const std::string failure = why_not_saved([&] { complete = under_way_->save.advance(); });
  const double seconds = now() - start;
  save_seconds_ += seconds;
  under_way_->stalled += seconds;
  if (complete || !failure.empty()) end_save(failure, next_save());
}

/// Waits for what is under way, if anything is: for how many seconds.
double Trainer::finish_save() {
  if (!under_way_) return 0;
  telemetry::Phase phase(console_, "waiting for the checkpoint of step", under_way_->of.step);
  const double start = now();
  const checkpoint::BackgroundSave& save = under_way_->save;
  std::int64_t told = -1;  // saying the same again would pass for progress
  const std::string failure = why_not_saved([&] {
    under_way_->save.finish([&] {
      if (const std::int64_t done = save.written(); std::exchange(told, done) != done)
        phase.at(share_of(done, save.bytes(), "written"));
    });
  });
  const double seconds = now() - start;
  save_seconds_ += seconds;
  under_way_->stalled += seconds;
  end_save(failure, "now");
  return seconds;
}

/// What ended the run is told, and not what became of the checkpoint besides.
void Trainer::finish_save_of_failed() {
  snapshot_.reset();
  try {
    finish_save();
  } catch (const runtime::AgreedError&) {
    under_way_.reset();
  }
}

void Trainer::end_save(const std::string& failure, const std::string& again) {
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
  if (progress_.optimizer_steps > of.optimizer_steps)
    progress_.proven_step = std::max(progress_.proven_step, of.step);
}

void Trainer::note_saved(const SavedState& of, const std::string& how, const std::string& lost,
                         const std::string& warning) {
  damaged_.erase(of.step);
  saved_state_ = of;
  saved_ = fmt::format("{}/step_{}", config::checkpoint_folder(deck_), of.step);
  // HDF5 is first used here: what it keeps is outside the plan too.
  if (outside_bytes_ > 0) outside_bytes_ = std::max(outside_bytes_, worker_.outside_bytes());
  console_.print(fmt::format("step {}: checkpoint {} ({})\n", of.step, saved_, how));
  if (!lost.empty())
    console_.print(fmt::format(
        "step {}: warning: {}, the checkpoint before, is gone; was its folder removed?\n", of.step, lost));
  if (!warning.empty()) console_.print(fmt::format("step {}: warning: {}\n", of.step, warning));
}

}  // namespace ztrain::train
