#include "train/audits.hpp"

#include <fmt/format.h>

#include "base/hash.hpp"
#include "checkpoint/rank_group.hpp"
#include "job/held_pieces.hpp"

namespace ztrain::train {
namespace {

/// Returns a piece that describes the step's counters, which are equal on all ranks.
job::HeldPiece counters_of(const job::Progress& progress, const StepScalars& scalars) {
  const std::string counted =
      fmt::format("{} {} {} {} {}", progress.step, progress.samples, progress.optimizer_steps,
                  progress.loss_scaler.scale, progress.skipped_in_a_row);
  return {"loss, norm, rate and counters of the step", AxisSet::all(),
          hash_bytes(&scalars, sizeof scalars, hash_text(counted))};
}

}  // namespace

bool Audits::is_due() const {
  const std::int64_t interval = run_.deck.watchdog.audit_interval;
  return interval > 0 && (run_.progress.step % interval == 0 || run_.is_complete());
}

bool Audits::copies_agree() {
  if (run_.deck.watchdog.audit_interval == 0 || audited_step_ == run_.progress.step) return true;
  const telemetry::Phase phase(run_.console, "comparing the copies of the state");
  std::vector<job::HeldPiece> pieces;
  run_.session.agree("comparing the copies of the state", [&] { pieces = job::held_pieces(run_.worker); });
  pieces.push_back(counters_of(run_.progress, run_.worker.scalars()));
  const Corruption found = differing_copies(run_.session, pieces);
  if (!found.text.empty()) {
    go_back(run_.progress.step, found);
    return false;
  }
  audited_step_ = run_.progress.step;
  return true;
}

std::vector<checkpoint::StateShard> Audits::copied_state() {
  std::vector<checkpoint::StateShard> states;
  kept_.reset();
  try {
    checkpoint::Group::world().together([&] {
      states = run_.worker.copied_state();
      if (run_.deck.watchdog.audit_interval > 0) kept_hash_ = job::hash_of_copy(run_.worker);
    });
  } catch (const runtime::AgreedError& e) {
    throw checkpoint::NotSaved(e.what());
  }
  kept_ = run_.progress;
  return states;
}

bool Audits::is_taken_twice() const {
  const std::int64_t interval = run_.deck.watchdog.audit_interval;
  return interval > 0 && run_.progress.step % interval == 0 && has_kept();
}

void Audits::step_twice() {
  for (;;) {
    const job::StepDifference own = job::step_twice(
        run_.worker,
        [this] {
          restore_kept();
          output_.pass_over_sent();
        },
        [this](StepScalars&) { run_.set_scalars(); });
    const Corruption found = differing_steps(run_.session, own);
    if (found.text.empty()) return;
    go_back(run_.progress.step + 1, found);
  }
}

/// Collective. Goes back to the copy that is kept. Checks its hash first: a copy that has changed would pass
/// for the state from then on.
void Audits::restore_kept() {
  const telemetry::Phase phase(run_.console, "going back to the state that is kept",
                               [this] { return run_.worker.position(); });
  run_.session.agree("going back to the state that is kept", [&] {
    REQUIRE(job::hash_of_copy(run_.worker) == kept_hash_,
            "step {}: the copy of the state of step {} has changed in the memory of {}, so the run cannot go "
            "back to it; the same command goes on from the newest checkpoint",
            run_.progress.step, kept_->step, run_.session.host());
  });
  run_.worker.restore_copied();
}

/// Collective. Goes back to the state that is kept, because step `at` is wrong. Everything but the inputs of
/// the next step follows from that state, as in a run that is started again.
void Audits::go_back(std::int64_t at, const Corruption& found) {
  const std::string what = fmt::format("step {}: silent corruption: {}", at, found.text);
  if (!kept_) throw runtime::AgreedError(what);
  if (times_back_ >= run_.deck.watchdog.audit_limit)
    throw runtime::AgreedError(
        fmt::format("{}\nthe run has gone back {} times (watchdog.audit_limit), and ends; nodes to leave "
                    "out: {}; the same command goes on from the newest checkpoint",
                    what, times_back_, found.nodes.empty() ? "not known" : found.nodes));
  ++times_back_;
  run_.print("{}; the run goes back to step {}\n", what, kept_->step);
  restore_kept();
  run_.progress = *kept_;
  run_.skipped_steps =
      job::SkippedSteps(run_.deck, &run_.progress.loss_scaler, run_.progress.skipped_in_a_row);
  output_.pass_over_sent();
  audited_step_ = run_.progress.step;
  if (run_.session.rank() == 0)
    output_.write(telemetry::CorruptionRecord{run_.progress.step, at, found.text});
}

}  // namespace ztrain::train
