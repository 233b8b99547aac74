#include "train/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "config/validate/validate.hpp"
#include "train/references.hpp"

namespace ztrain::train {

Inputs::Inputs(Run& run)
    : run_(run), part_(job::part_of_batches(run.worker, run.deck.batch.micro * run.deck.data.sequence)) {
  if (run.data.teacher)
    places_.resize(
        static_cast<std::size_t>(job::own_tokens(run.worker, run.deck.batch.micro * run.deck.data.sequence)));
}

/// Returns the number of the first sample of this rank in a micro-batch of the step whose samples begin at
/// `samples`.
std::int64_t Inputs::first_sample(std::int64_t samples, std::int64_t micro_batch) const {
  return samples +
         (micro_batch * run_.worker.data_ranks() + run_.worker.data_index()) * run_.deck.batch.micro;
}

void Inputs::fill() {
  const double start = now();
  const std::int64_t micros = config::accumulation_steps(run_.deck), micro = run_.deck.batch.micro;
  for (std::int64_t m = 0; m < micros; ++m) {
    const job::InputAddresses inputs = run_.worker.inputs(static_cast<int>(m));
    data::MicroBatch to = job::batch_of(inputs);
    if (run_.data.teacher) to.places = places_.data();
    part_.fill(to, [&](const data::MicroBatch& batch) {
      run_.sampler.fill(first_sample(run_.progress.samples, m), micro, batch);
    });
    if (run_.data.teacher) run_.data.teacher->fill(places_, {inputs.words, inputs.shares});
  }
  run_.clock.data = now() - start;
}

void Inputs::fill_next() {
  if (!run_.failure.empty()) return;
  const telemetry::Phase phase(run_.console, "reading the data of step", run_.progress.step + 1);
  try {
    fill();
  } catch (const Error& e) {
    run_.failure = e.what();
  }
}

void Inputs::read_ahead() const {
  if (run_.progress.step + 1 >= run_.facts.steps) return;
  const std::int64_t next = run_.progress.samples + run_.deck.batch.global;
  for (std::int64_t m = 0; m < config::accumulation_steps(run_.deck); ++m)
    run_.sampler.read_ahead(first_sample(next, m), run_.deck.batch.micro);
}

Trainer::Trainer(const runtime::Session& session, telemetry::Console& console, telemetry::Watchdog& watchdog,
                 config::Deck deck, std::string version)
    : watchdog_(watchdog),
      run_(session, console, prepare(session, console, std::move(deck)), std::move(version)),
      limits_(run_.deck, session.slurm().end),
      inputs_(run_),
      output_(run_, limits_),
      audits_(run_, output_),
      snapshots_(run_, audits_),
      saves_(run_, output_, limits_, audits_, snapshots_),
      end_(run_, limits_, output_, snapshots_, saves_),
      profile_(run_) {
  start(run_, limits_, output_, snapshots_, saves_);
  take_references(run_);
  // Reading the first batch finds ids beyond the vocabulary, the usual mistake, before anything runs.
  session.agree("reading the first batch", [&] { inputs_.fill(); });
  console.print(run_.is_complete() ? nothing_to_do(run_.deck, run_.progress, run_.facts.steps)
                                   : fmt::format("training starts at step {} of {}\n", run_.progress.step + 1,
                                                 run_.facts.steps));
  output_.pass_over_sent();
  run_.preparing.reset();
}

Ending Trainer::run() {
  const telemetry::Watchdog::Detail detail(watchdog_, [this] { return run_.worker.where(); });
  const auto exchange = end_.exchange_places(watchdog_);
  const runtime::Signals::Caught caught(
      run_.session.signals(), [this](const runtime::Signals::Kind& signal) { end_.notice(signal); });
  if (!run_.is_complete())
    run_.console.print(telemetry::step_header({run_.facts.offload, run_.facts.pipeline, run_.facts.experts,
                                               run_.deck.preference.is_on()}) +
                       "\n");
  try {
    take_steps();
  } catch (const runtime::AgreedError&) {
    saves_.finish_of_failed();
    throw;
  }
  return end_.end();
}

void Trainer::take_steps() {
  if (audits_.are_on() && !run_.is_complete() && audits_.copies_agree()) keep_state();
  while (!run_.is_complete()) {
    const double start = now();
    if (!step()) return;
    end_.look_for_requests();
    output_.report_outside();
    if (run_.skipped_steps.has_given_up()) return;
    profile_.beside("evaluation and saves", [&] { after_step(); });
    if (!run_.is_complete()) profile_.beside("reading data", [&] { inputs_.fill_next(); });
    profile_.end_turn();
    limits_.turn_took(now() - start);
    if (stops_early()) return;
  }
}

/// Returns false if the step could not be taken, and the run is to end.
bool Trainer::step() {
  const telemetry::Phase phase(run_.console, "step", run_.progress.step + 1,
                               [this] { return run_.worker.position(); });
  StepClock& clock = run_.clock;
  const double start = now();
  profile_.step([&] { compute_step(); });
  clock.total = clock.data + now() - start;
  run_.worker.held().look();
  if (run_.deck.debug.poison) run_.worker.memory().check_guards();
  if (end_.stops_at_non_finite()) return false;
  ++run_.progress.step;
  run_.progress.samples += run_.deck.batch.global;
  warn_of_masked_step();
  const bool found_inf = run_.worker.scalars().found_inf != 0;
  run_.progress.evaluation_failed = false;
  run_.progress.validation_loss.reset();
  if (!found_inf) {
    ++run_.progress.optimizer_steps;
    run_.progress.proven_step = std::max(run_.progress.proven_step, saves_.newest().step);
  }
  run_.console.print(run_.skipped_steps.after_step(found_inf, run_.progress.step));
  run_.progress.loss_scaler = run_.skipped_steps.state();
  run_.progress.skipped_in_a_row = run_.skipped_steps.skipped_in_a_row();
  output_.report_step();
  clock.save = clock.save_wait = 0;
  return true;
}

void Trainer::compute_step() {
  run_.set_scalars();
  run_.worker.train().clear_timings();
  inputs_.read_ahead();
  if (run_.progress.step + 1 == run_.deck.metrics.timeline_step)
    step_with_timeline(run_);
  else if (audits_.is_taken_twice())
    audits_.step_twice();
  else
    run_.worker.step();
}

/// Warns that a step without a token to predict has no loss and a gradient of zero.
void Trainer::warn_of_masked_step() {
  if (run_.worker.scalars().valid_tokens > 0) return;
  run_.print(
      "step {}: warning: none of its {} sequences holds a token that is to be predicted "
      "(loss_mask of data.train), so it has no "
      "gradient; data.packing = \"documents\" leaves such documents out\n",
      run_.progress.step, run_.deck.batch.global);
}

/// Does the evaluation, the audit and the save that are due. The audit may go back to an older state.
void Trainer::after_step() {
  if (evaluation_is_due()) evaluate();
  if (audits_.is_due() && !audits_.copies_agree()) return;
  if (run_.is_complete()) return;  // run() saves the end
  if (saves_.is_due())
    saves_.save_or_wait();
  else if (snapshots_.is_due() && !saves_.is_under_way())
    snapshots_.take();
  if (audits_.is_due()) keep_state();
}

/// Checkpoints that are compared by their loss have an evaluation each, if the step was not skipped.
bool Trainer::evaluation_is_due() const {
  const std::int64_t interval = run_.deck.evaluation.interval;
  if (interval <= 0) return false;
  if (run_.progress.step % interval == 0 || run_.is_complete()) return true;
  return saves_.needs_losses() && saves_.is_due() && run_.skipped_steps.skipped_in_a_row() == 0;
}

void Trainer::evaluate() {
  if (run_.data.validation.empty()) return;
  const double start = now();
  telemetry::Phase phase(run_.console, "evaluation", [this] { return run_.worker.position(); });
  const job::Losses losses = job::evaluate(run_.worker, run_.deck, run_.data.validation,
                                           [&](const std::string& batch) { phase.at(batch); });
  run_.failure = run_.agreed(run_.failure.empty() ? losses.failure : run_.failure);
  if (!run_.failure.empty()) return;
  note_loss(losses);
  const bool best = run_.progress.best_step == run_.progress.step;
  output_.pass_over_sent();
  output_.report_evaluation(losses);
  run_.print("step {}: {}{} ({:.1f} s)\n", run_.progress.step, job::describe(losses),
             best ? ", the best so far" : "", now() - start);
  if (run_.is_out_of_patience())
    run_.print(
        "step {}: the run ends here: no loss of {} in a row is more than {} below the lowest so far "
        "(evaluation.patience, evaluation.min_delta)\n",
        run_.progress.step, count_text(run_.progress.evaluations_without_improvement, "evaluation"),
        run_.deck.evaluation.min_delta);
}

/// Compares a validation loss with the lowest so far.
void Trainer::note_loss(const job::Losses& losses) {
  job::Progress& p = run_.progress;
  const bool improves =
      losses.finite() && losses.all < p.best_validation_loss - run_.deck.evaluation.min_delta;
  p.evaluations_without_improvement = improves ? 0 : p.evaluations_without_improvement + 1;
  if (losses.finite() && losses.all < run_.progress.best_validation_loss)
    p.best_validation_loss = losses.all, p.best_step = p.step;
  p.evaluation_failed = !losses.finite();
  if (losses.finite()) p.validation_loss = losses.all;
}

/// Keeps a copy of a state whose copies agree. A state that is being saved is such a copy until the save
/// ends.
void Trainer::keep_state() {
  if (audits_.has_kept()) return;
  saves_.wait("the state of this one was to be kept (watchdog.audit_interval)");
  const telemetry::Phase phase(run_.console, "copying the state");
  audits_.copied_state();
}

/// Asks all ranks whether to stop. After the last step there is nothing to stop.
bool Trainer::stops_early() {
  if (run_.is_complete()) return false;
  const runtime::Requests asked = end_.hear(saves_.works() || snapshots_.works());
  if (asked.stop != runtime::Stop::none) {
    end_.note_stop(asked);
    return true;
  }
  if (!asked.writes) saves_.advance();
  if (!asked.writes) snapshots_.advance();
  if (asked.save) save_as_asked();
  return false;
}

/// Saves on request. If the save goes back to an older state, the inputs of the next step are read again. A
/// rank that cannot read them ends the run, because its old inputs would make a wrong step.
void Trainer::save_as_asked() {
  const std::int64_t step = run_.progress.step;
  saves_.save_as_asked();
  if (run_.progress.step != step) run_.session.agree("reading the data", [&] { inputs_.fill(); });
}

}  // namespace ztrain::train
