#include "train/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "checkpoint/retention.hpp"
#include "config/hf/starting_point.hpp"
#include "config/text/print.hpp"
#include "config/validate/validate.hpp"
#include "files/file.hpp"
#include "job/evaluation.hpp"
#include "job/memory_report.hpp"
#include "job/peak.hpp"
#include "job/product_algorithms.hpp"
#include "job/require_memory.hpp"
#include "job/save_proof.hpp"
#include "job/weights.hpp"
#include "memory/provider.hpp"
#include "model/family.hpp"
#include "optim/schedule.hpp"
#include "plan/setup.hpp"
#include "train/output_folder.hpp"
#include "train/run_files.hpp"

namespace ztrain::train {
namespace {

RunFacts facts_of(const config::Deck& deck, const data::Sampler& sampler, const model::Graph& graph,
                  int ranks) {
  RunFacts f;
  f.steps = config::total_steps(deck, sampler.rows_per_epoch());
  f.tokens_per_step = config::tokens_per_step(deck);
  f.flops_per_token = model::flops_per_token(deck.model, graph, deck.data.sequence);
  f.machine_bytes = static_cast<double>(memory::machine_memory().total);
  f.ranks = ranks;
  return f;
}

/// A deck that leaves its vocabulary open has it from its data, and says so where it is printed.
void take_vocabulary(config::Deck& deck, const data::Datasets& data) {
  if (deck.model.vocab_size == 0)
    for (config::Origin& origin : deck.origins)
      if (origin.key == "model.vocab_size") origin.source = "data.train";
  deck.model.vocab_size = data.vocab_size;
  // A Hugging Face model keeps its own, also in checkpoints that outlive its folder.
  const bool has_own = !deck.model.origin.empty() && !deck.model.ends.empty();
  if (!has_own && !data.tokenizer.ends.empty()) deck.model.ends = data.tokenizer.ends;
}

}  // namespace

Prepared prepare(const runtime::Session& session, telemetry::Console& console, config::Deck deck) {
  telemetry::Phase phase(console, "opening the data");
  Prepared prepared = session.agree("opening the data", [&] {
    config::validate_for_ranks(deck, session.size(), session.max_ranks_per_node());
    config::require_base_of_adapters(deck);
    data::Datasets data = data::open_datasets(deck, [&](std::string_view next) { phase.at(next); });
    take_vocabulary(deck, data);
    if (session.rank() == 0) require_apart(deck);
    job::require_readable_metadata(deck, data::identity_of(data));
    return Prepared{std::move(deck), std::move(data)};
  });
  // Only now: a rank that failed above would not take part in this exchange.
  const std::string mine =
      hex(config::deck_hash(prepared.deck)) + hex(data::hash_of(data::identity_of(prepared.data)));
  const std::string first = session.from_rank_0(mine);
  session.agree("comparing the ranks' inputs", [&] {
    REQUIRE(mine == first,
            "{} reads another deck or other data than rank 0: all nodes must see the same files",
            session.host());
  });
  return prepared;
}

Trainer::Trainer(const runtime::Session& session, telemetry::Console& console, telemetry::Watchdog& watchdog,
                 config::Deck deck, std::string version)
    : Trainer(session, console, watchdog, prepare(session, console, std::move(deck)), std::move(version)) {}

Trainer::Trainer(const runtime::Session& session, telemetry::Console& console, telemetry::Watchdog& watchdog,
                 Prepared prepared, std::string version)
    : session_(session),
      console_(console),
      watchdog_(watchdog),
      preparing_(std::in_place, console, "preparing data, memory and kernels"),
      deck_(std::move(prepared.deck)),
      version_(std::move(version)),
      data_(std::move(prepared.data)),
      sampler_(session.agree("opening the data", [&] { return data::make_sampler(deck_, data_); })),
      facts_(session.agree(
          "reading the schedule",
          [&] { return facts_of(deck_, sampler_, plan::training_graph(deck_), session.size()); })),
      skipped_steps_(deck_),
      worker_{session,
              job::compile_and_verify(
                  session, console, plan::training_graph(deck_),
                  session.agree("planning the job", [&] { return plan::job_spec(deck_, build_target()); })),
              &deck_, job::worker_options(deck_), job::open_device(session, deck_, preparing_)},
      part_(job::part_of_batches(worker_, deck_.batch.micro * deck_.data.sequence)),
      stragglers_(deck_, session, worker_.mesh().shape()),
      limits_(deck_, session.slurm().end) {
  progress_.products =
      job::chosen_products(worker_.queues().exec(runtime::compute_queue), deck_.precision.parameters);
  progress_.processor = job::processor_of(worker_.device(), deck_.precision.parameters);
  progress_.run_steps = facts_.steps;
  facts_.offload = job::is_offloaded(worker_.job().train());
  facts_.behind_training = config::saves_behind_training(deck_);
  facts_.pipeline = deck_.mesh.pipeline > 1;
  facts_.peak_flops = job::peak_of(deck_, worker_.device().name()).flops_per_second;
  if (job::has_memory_of_its_own(worker_.device()))
    facts_.machine_bytes = static_cast<double>(worker_.device().memory().limits().total);
  console_.print(session.agree("describing the run",
                               [&] { return banner(session, deck_, data_, worker_, facts_, version_); }));
  job::prove_saves(session, console, deck_, worker_.job());
  // Before a checkpoint is looked for: a run that still writes there may write a newer one.
  session.agree("preparing the output folder", [&] {
    if (session_.rank() == 0) hold_folders();
  });
  open_snapshots();
  restore();
  steps_at_start_ = progress_.step;
  worker_.take_room_for_copies();
  clear_snapshots();
  session.agree("preparing the output folder", [&] {
    if (session_.rank() == 0) begin_output();
    // No save follows, which would sweep up behind a run that was killed right behind its last one.
    if (session_.rank() == 0 && progress_.step >= facts_.steps && deck_.checkpoint.interval >= 0)
      for (const std::string& left : checkpoint::remove_remains(config::checkpoint_folder(deck_)))
        console_.print(fmt::format("warning: {}\n", left));
  });
  session.agree("preparing the output folder", [&] {
    const std::string folder = config::checkpoint_folder(deck_);
    REQUIRE(
        deck_.checkpoint.interval < 0 || std::filesystem::is_directory(folder),
        "checkpoint.folder: {} does not see '{}', which rank 0 has made: give a folder that all nodes share",
        session_.host(), folder);
  });
  prepare_for_saves();
  // Finds ids beyond the vocabulary, the usual mistake, before anything runs.
  session.agree("reading the first batch", [&] { fill_inputs(); });
  console_.print(progress_.step < facts_.steps
                     ? fmt::format("training starts at step {} of {}\n", progress_.step + 1, facts_.steps)
                     : nothing_to_do(deck_.run, progress_.step, facts_.steps));
  sent_before_ = worker_.mesh().bytes_sent();
  preparing_.reset();
}

/// Where a node is cut off the job goes on without it, or is requeued, and SLURM ends the ranks there only
/// once it reaches them again: until then they hold the folders.
Patience Trainer::patience() const {
  constexpr double longest = 300;
  Patience patience;
  if (session_.slurm().started_before())
    patience.seconds = deck_.watchdog.timeout > 0 ? std::min(longest, deck_.watchdog.timeout / 2) : longest;
  patience.told = [this, seconds = patience.seconds, told = false](const std::string& why) mutable {
    if (!std::exchange(told, true))
      console_.print(fmt::format(
          "an earlier start of this job may not have ended yet; waiting up to {:.0f} s: {}\n", seconds, why));
  };
  return patience;
}

void Trainer::hold_folders() {
  const Patience patience = this->patience();
  const std::filesystem::path output(deck_.run.output);
  make_writable(output, "run.output");
  folders_.push_back(hold(output, "run.output", session_.host(), patience));
  if (deck_.checkpoint.interval < 0) return;
  const std::string folder = config::checkpoint_folder(deck_);
  make_writable(folder, "checkpoint.folder");
  if (!std::filesystem::equivalent(folder, output))
    folders_.push_back(hold(folder, "checkpoint.folder", session_.host(), patience));
}

/// A disk without room is better found now, when nothing is trained that it could lose. Where there are
/// checkpoints, older ones make room.
void Trainer::prepare_for_saves() {
  constexpr double slow = 1e8;  // bytes a second of a rank, until a save has been measured
  constexpr std::int64_t beside_tensors = 128 * 1024;  // the least that index, deck and metrics take
  if (deck_.checkpoint.interval < 0 || progress_.step >= facts_.steps) return;
  const Layout& layout = worker_.job().layout;
  const double bytes = plan::checkpoint_bytes(deck_, layout.parameter_count(), layout.trained_count());
  const int writers = session_.size() / worker_.mesh().shape()[Axis::replicate];
  limits_.expect_save(bytes / writers / slow);
  session_.agree("preparing the output folder", [&] {
    const std::string folder = config::checkpoint_folder(deck_);
    if (session_.rank() == 0 && !checkpoint::newest(folder))
      checkpoint::require_room(folder, static_cast<std::int64_t>(bytes) + beside_tensors);
  });
}

Ending Trainer::run() {
  const telemetry::Watchdog::Detail detail(watchdog_, [this] { return worker_.where(); });
  const auto exchange = exchange_places();
  const runtime::Signals::Caught caught(session_.signals(),
                                        [this](const runtime::Signals::Kind& signal) { notice(signal); });
  if (progress_.step < facts_.steps)
    console_.print(telemetry::step_header({facts_.offload, facts_.pipeline}) + "\n");
  try {
    take_steps();
  } catch (const runtime::AgreedError&) {
    finish_save_of_failed();
    throw;
  }
  print_last_line();
  if (const std::string failure = agreed(failure_); !failure.empty()) end_failed(failure);
  save_at_end();
  if (snapshots_) snapshots_->remove();
  if (outside_bytes_ > 0) report_peak();
  require_end();
  if (is_complete()) {
    if (!deck_.checkpoint.export_to.empty()) export_at_end();
    return Ending::complete;
  }
  if (!deck_.checkpoint.export_to.empty())
    console_.print(
        fmt::format("nothing is exported to '{}': the run is not at its end; the same command goes on\n",
                    deck_.checkpoint.export_to));
  return ending_of_stop();
}

void Trainer::take_steps() {
  if (deck_.watchdog.audit_interval > 0 && !is_complete() && audited()) keep_state();
  while (progress_.step < facts_.steps) {
    const double start = now();
    if (!step()) return;
    if (outside_bytes_ == 0) measure_outside();
    if (skipped_steps_.has_given_up()) return;
    behind_step();
    if (progress_.step < facts_.steps) fill_next_inputs();
    limits_.turn_took(now() - start);
    if (stops_early()) return;
  }
}

/// The same text on every rank: what has failed on any, as Session::agree words it; "" for nothing.
std::string Trainer::agreed(const std::string& failure) const {
  try {
    session_.agree("training", [&] {
      if (!failure.empty()) throw Error(failure);
    });
  } catch (const runtime::AgreedError& e) {
    return e.what();
  }
  return "";
}

/// That of a step whose turn it was not (metrics.interval), but behind which none comes.
void Trainer::print_last_line() {
  console_.print(std::exchange(last_line_, ""));
}

void Trainer::measure_outside() {
  outside_bytes_ = worker_.outside_bytes();
  console_.print(fmt::format("outside the plan {}: {} (measured after one step)\n",
                             format_bytes(outside_bytes_), worker_.held().outside_text()));
}

/// False where the step could not be taken, and the run is to end.
bool Trainer::step() {
  const telemetry::Phase phase(console_, "step", progress_.step + 1, [this] { return worker_.position(); });
  StepClock clock;
  clock.data = data_seconds_;
  const double start = now();
  set_scalars();
  worker_.train().clear_timings();
  read_ahead();
  if (progress_.step + 1 == deck_.metrics.timeline_step)
    step_with_timeline();
  else if (is_taken_twice())
    step_twice();
  else
    worker_.step();
  clock.total = clock.data + now() - start;
  worker_.held().look();
  clock.save = std::exchange(save_seconds_, 0.0);
  clock.save_wait = std::exchange(wait_seconds_, 0.0);
  if (deck_.debug.poison) worker_.memory().check_guards();
  if (stops_at_non_finite()) return false;
  ++progress_.step;
  progress_.samples += deck_.batch.global;
  warn_of_masked_step();
  const bool found_inf = worker_.scalars().found_inf != 0;
  progress_.evaluation_failed = false;
  progress_.validation_loss.reset();
  if (!found_inf) {
    ++progress_.optimizer_steps;
    progress_.proven_step = std::max(progress_.proven_step, saved_state_.step);
  }
  console_.print(skipped_steps_.after_step(found_inf, progress_.step));
  progress_.loss_scaler = skipped_steps_.state();
  progress_.skipped_in_a_row = skipped_steps_.skipped_in_a_row();
  report(clock);
  return true;
}

/// Without a token to predict there is no loss, and the gradient is zero.
void Trainer::warn_of_masked_step() {
  if (worker_.scalars().valid_tokens > 0) return;
  console_.print(
      fmt::format("step {}: warning: none of its {} sequences holds a token that is to be predicted "
                  "(loss_mask of data.train), so it has no "
                  "gradient; data.packing = \"documents\" leaves such documents out\n",
                  progress_.step, deck_.batch.global));
}

void Trainer::set_scalars() {
  StepScalars& s = worker_.scalars();
  const std::int64_t t = progress_.optimizer_steps;
  s.learning_rate = optim::learning_rate(deck_.schedule, deck_.optimizer.lr, t, facts_.steps);
  s.bias_correction1 = optim::bias_correction(deck_.optimizer.beta1, t + 1);
  s.bias_correction2 = optim::bias_correction(deck_.optimizer.beta2, t + 1);
  s.max_norm = deck_.optimizer.max_norm;
  s.loss_scale = skipped_steps_.loss_scale();
  s.optimizer_step = static_cast<double>(t);
}

void Trainer::report(const StepClock& clock) {
  auto sent = worker_.mesh().bytes_sent();
  std::vector<runtime::Mesh::Sent> this_step = sent;
  for (auto& now_sent : this_step)
    for (const auto& before : sent_before_)
      if (before.axes == now_sent.axes) now_sent.bytes -= before.bytes;
  sent_before_ = std::move(sent);
  console_.print(stragglers_.after_step(progress_.step, worker_.train().timings(), clock));
  if (session_.rank() != 0) return;
  mean_step_.add(clock.total);
  const auto record = step_record(worker_, worker_.train().timings(), progress_, facts_, clock, this_step);
  last_line_ = telemetry::step_line(step_line(record, facts_, seconds_left())) + "\n";
  if (progress_.step % deck_.metrics.interval == 0 || progress_.step == facts_.steps) print_last_line();
  write_metrics(record);
}

template <class Record>
void Trainer::write_metrics(const Record& record) {
  try {
    folders_.front().hold_again();
    const std::string note = metrics_->write(record);
    if (note.empty()) return;
    console_.print(fmt::format("step {}: warning: {}\n", progress_.step, note));
    write_resolved_deck();
  } catch (const Error& e) {
    failure_ = e.what();
  }
}

template void Trainer::write_metrics(const telemetry::CorruptionRecord& record);

/// Until the last step, or until the run ends itself.
double Trainer::seconds_left() const {
  const double steps = mean_step_.seconds() * static_cast<double>(facts_.steps - progress_.step);
  return std::min(steps, limits_.seconds_left(session_.lasts(), wall_clock()).value_or(steps));
}

void Trainer::evaluate_and_report() {
  if (data_.validation.empty()) return;
  const double start = now();
  telemetry::Phase phase(console_, "evaluation", [this] { return worker_.position(); });
  const job::Losses losses =
      job::evaluate(worker_, deck_, data_.validation, [&](const std::string& batch) { phase.at(batch); });
  failure_ = agreed(failure_.empty() ? losses.failure : failure_);
  if (!failure_.empty()) return;
  const bool best = losses.finite() && losses.all < progress_.best_validation_loss;
  if (best) progress_.best_validation_loss = losses.all;
  progress_.evaluation_failed = !losses.finite();
  if (losses.finite()) progress_.validation_loss = losses.all;
  sent_before_ = worker_.mesh().bytes_sent();
  if (session_.rank() == 0) {
    telemetry::EvaluationRecord record{progress_.step, losses.all, {}};
    for (const job::SetLoss& set : losses.sets) record.sets.emplace_back(set.name, set.loss);
    write_metrics(record);
  }
  console_.print(fmt::format("step {}: {}{} ({:.1f} s)\n", progress_.step, job::describe(losses),
                             best ? ", the best so far" : "", now() - start));
}

}  // namespace ztrain::train
