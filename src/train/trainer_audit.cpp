// Silent corruption: a state is kept once its copies agree. A run whose copies do not agree later goes back
// to it, and so does one whose next step, computed twice, has different results.

#include <fmt/format.h>

#include "base/hash.hpp"
#include "job/held_pieces.hpp"
#include "train/trainer.hpp"

namespace ztrain::train {
namespace {

/// What is the same on all ranks beside tensors.
job::HeldPiece counters_of(const job::Progress& progress, const StepScalars& scalars) {
  const std::string counted =
      fmt::format("{} {} {} {} {}", progress.step, progress.samples, progress.optimizer_steps,
                  progress.loss_scaler.scale, progress.skipped_in_a_row);
  return {"loss, norm, rate and counters of the step", AxisSet::all(),
          hash_bytes(&scalars, sizeof scalars, hash_text(counted))};
}

}  // namespace

/// Behind so many steps, and at the end.
bool Trainer::audit_is_due() const {
  const std::int64_t interval = deck_.watchdog.audit_interval;
  return interval > 0 && (progress_.step % interval == 0 || is_complete());
}

/// Whether training may go on from this state, and it may be saved: ranks that hold copies hold the same.
/// Otherwise the run has gone back. Collective.
bool Trainer::audited() {
  if (deck_.watchdog.audit_interval == 0 || audited_step_ == progress_.step) return true;
  const telemetry::Phase phase(console_, "comparing the copies of the state");
  std::vector<job::HeldPiece> pieces;
  session_.agree("comparing the copies of the state", [&] { pieces = job::held_pieces(worker_); });
  pieces.push_back(counters_of(progress_, worker_.scalars()));
  const Corruption found = differing_copies(session_, pieces);
  if (!found.text.empty()) {
    go_back(progress_.step, found);
    return false;
  }
  audited_step_ = progress_.step;
  return true;
}

/// A state whose copies agree. One that is being saved is such a copy until then.
void Trainer::keep_state() {
  if (kept_ && kept_->step == progress_.step) return;
  wait_for_save("the state of this one was to be kept (watchdog.audit_interval)");
  const telemetry::Phase phase(console_, "copying the state");
  copied_state();
}

/// Whether the next step is computed twice: behind an audit, from the state that is kept.
bool Trainer::is_taken_twice() const {
  const std::int64_t interval = deck_.watchdog.audit_interval;
  return interval > 0 && progress_.step % interval == 0 && kept_ && kept_->step == progress_.step;
}

/// Until two in a row agree.
void Trainer::step_twice() {
  for (;;) {
    const job::StepDifference own = job::step_twice(
        worker_,
        [this] {
          restore_kept();
          sent_before_ = worker_.mesh().bytes_sent();
        },
        [this](StepScalars&) { set_scalars(); });
    const Corruption found = differing_steps(session_, own);
    if (found.text.empty()) return;
    go_back(progress_.step + 1, found);
  }
}

/// Collective. A copy that is itself not as it was would pass for the state from then on.
void Trainer::restore_kept() {
  const telemetry::Phase phase(console_, "going back to the state that is kept",
                               [this] { return worker_.position(); });
  session_.agree("going back to the state that is kept", [&] {
    REQUIRE(job::hash_of_copy(worker_) == kept_hash_,
            "step {}: the copy of the state of step {} has changed in the memory of {}, so the run cannot go "
            "back to it; the same command goes on from the newest checkpoint",
            progress_.step, kept_->step, session_.host());
  });
  worker_.restore_copied();
}

/// To the state that is kept. All else is drawn from it, as a run that is started again would, but for the
/// inputs of the next step. at: the step that is not right.
void Trainer::go_back(std::int64_t at, const Corruption& found) {
  const std::string what = fmt::format("step {}: silent corruption: {}", at, found.text);
  if (!kept_) throw runtime::AgreedError(what);
  if (times_back_ >= deck_.watchdog.audit_limit)
    throw runtime::AgreedError(
        fmt::format("{}\nthe run has gone back {} times (watchdog.audit_limit), and ends; nodes to leave "
                    "out: {}; the same command goes on from the newest checkpoint",
                    what, times_back_, found.nodes.empty() ? "not known" : found.nodes));
  ++times_back_;
  console_.print(fmt::format("{}; the run goes back to step {}\n", what, kept_->step));
  restore_kept();
  progress_ = *kept_;
  skipped_steps_ = job::SkippedSteps(deck_, &progress_.loss_scaler, progress_.skipped_in_a_row);
  sent_before_ = worker_.mesh().bytes_sent();
  audited_step_ = progress_.step;
  if (session_.rank() == 0) write_metrics(telemetry::CorruptionRecord{progress_.step, at, found.text});
}

}  // namespace ztrain::train
