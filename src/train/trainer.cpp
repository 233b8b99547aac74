#include "train/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "config/print.hpp"
#include "config/validate.hpp"
#include "memory/machine.hpp"
#include "model/family.hpp"
#include "optim/schedule.hpp"
#include "plan/setup.hpp"
#include "train/evaluation.hpp"
#include "train/export_model.hpp"
#include "train/output_folder.hpp"
#include "train/peak.hpp"
#include "train/require_memory.hpp"
#include "train/starting_weights.hpp"
#include "train/weights.hpp"

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

}  // namespace

Prepared prepare(const runtime::Session& session, config::Deck deck) {
  Prepared prepared = session.agree("opening the data", [&] {
    config::validate_for_ranks(deck, session.size(), session.max_ranks_per_node());
    data::Datasets data = data::open_datasets(deck);
    deck.model.vocab_size = data.vocab_size;
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

Trainer::Trainer(const runtime::Session& session, config::Deck deck, std::string version)
    : Trainer(session, prepare(session, std::move(deck)), std::move(version)) {}

Trainer::Trainer(const runtime::Session& session, Prepared prepared, std::string version)
    : session_(session),
      deck_(std::move(prepared.deck)),
      version_(std::move(version)),
      data_(std::move(prepared.data)),
      sampler_(session.agree("opening the data", [&] { return data::make_sampler(deck_, data_); })),
      facts_(session.agree(
          "reading the schedule",
          [&] { return facts_of(deck_, sampler_, plan::training_graph(deck_), session.size()); })),
      overflow_(deck_),
      worker_{session,
              compile_and_verify(session, plan::training_graph(deck_), plan::job_spec(deck_, build_target())),
              &deck_, worker_options(deck_), open_device(session, deck_)} {
  facts_.peak_flops = peak_of(deck_, worker_.device().name()).flops_per_second;
  if (has_memory_of_its_own(worker_.device()))
    facts_.machine_bytes = static_cast<double>(worker_.device().memory().limits().total);
  say(session.agree("describing the run",
                    [&] { return banner(session, deck_, data_, worker_, facts_, version_); }));
  restore();
  steps_at_start_ = progress_.step;
  session.agree("preparing the output folder", [&] {
    if (session_.rank() == 0) prepare_output();
  });
  session.agree("preparing the output folder", [&] {
    const std::string folder = config::checkpoint_folder(deck_);
    REQUIRE(
        deck_.checkpoint.interval < 0 || std::filesystem::is_directory(folder),
        "checkpoint.folder: {} does not see '{}', which rank 0 has made: give a folder that all nodes share",
        session_.host(), folder);
  });
  // Finds ids beyond the vocabulary, the usual mistake, before anything runs.
  session.agree("reading the first batch", [&] { fill_inputs(); });
  say(progress_.step < facts_.steps
          ? fmt::format("training starts at step {} of {}\n", progress_.step + 1, facts_.steps)
          : fmt::format(
                "nothing to do: the checkpoint is at step {} and the run ends at step {} (run.steps)\n",
                progress_.step, facts_.steps));
  sent_before_ = worker_.mesh().bytes_sent();
}

void Trainer::say(const std::string& text) const {
  if (session_.rank() != 0) return;
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void Trainer::prepare_output() {
  const std::filesystem::path output(deck_.run.output);
  make_writable(output, "run.output");
  lock_.emplace(lock_output(output));
  if (deck_.checkpoint.interval >= 0) {
    const std::string folder = config::checkpoint_folder(deck_);
    make_writable(folder, "checkpoint.folder");
    const std::string aside = move_aside(folder, progress_.step);
    if (!aside.empty()) say(fmt::format("checkpoints beyond step {} are now in {}\n", progress_.step, aside));
  }
  const std::string path = (output / "deck.resolved.toml").string();
  std::ofstream file(path);
  file << config::resolved_toml(deck_);
  file.close();
  REQUIRE(file, "run.output: cannot write {}: {}", path, std::strerror(errno));
  metrics_.emplace(deck_.run.output, progress_.step > 0 ? std::optional(progress_.step) : std::nullopt);
}

/// Rank 0 alone looks: a shared file system may show ranks different states of a folder.
std::string Trainer::checkpoint_to_resume() const {
  const std::string& resume = deck_.checkpoint.resume;
  if (resume == "none") return "";
  if (resume != "auto") return resume;
  return session_.from_rank_0(session_.agree("looking for checkpoints", [&]() -> std::string {
    if (session_.rank() != 0) return "";
    const auto newest = checkpoint::newest(config::checkpoint_folder(deck_));
    return newest ? newest->string() : "";
  }));
}

void Trainer::restore() {
  const std::string path = checkpoint_to_resume();
  if (!path.empty()) {
    load_checkpoint(path);
    say(fmt::format("checkpoint {} (step {}, {} sequences consumed)\n", path, progress_.step,
                    progress_.samples));
    return;
  }
  const std::string& from = deck_.model.from;
  const std::string source = from.empty() ? fmt::format("the weights are drawn from seed {}", deck_.run.seed)
                                          : "the weights are read";
  say(deck_.checkpoint.resume == "none"
          ? "no checkpoint is read: checkpoint.resume = \"none\"\n"
          : fmt::format("no checkpoint in {}: {}\n", config::checkpoint_folder(deck_), source));
  session_.agree("preparing the output folder", [&] { require_export(); });
  if (!from.empty())
    return start_from_weights(session_, worker_, deck_, [this](const std::string& line) { say(line); });
  worker_.initialize(static_cast<std::uint64_t>(deck_.run.seed));
}

/// Before minutes of reading.
void Trainer::require_export() const {
  if (session_.rank() == 0 && !deck_.checkpoint.export_to.empty() && progress_.step < facts_.steps)
    require_exportable(deck_);
}

void Trainer::load_checkpoint(const std::string& path) {
  const std::string note = session_.agree("reading the checkpoint", [&] {
    const Restored restored =
        from_metadata(checkpoint::read_metadata(path), deck_, data::identity_of(data_), path);
    progress_ = restored.progress;
    require_export();
    const auto& job = worker_.job();
    const auto shards = worker_.state(true);
    checkpoint::load(path, place_of(job.load, job.layout), shards);
    overflow_ = Overflow(deck_, &progress_.loss_scaler);
    return restored.note;
  });
  say(note);
  worker_.load_copies();
  saved_step_ = progress_.step;
  saved_ = path;
}

/// What the host is issuing or waiting for, for the watchdog's thread.
std::string Trainer::where() const {
  const std::string at = worker_.where();
  return at.empty() ? "" : " (" + at + ")";
}

void Trainer::run() {
  watchdog_.emplace(
      deck_.watchdog.timeout, session_.rank(), session_.host(),
      [this](const std::string& message) { telemetry::Watchdog::print_and_exit(message + where()); });
  if (progress_.step < facts_.steps) say(telemetry::step_header() + "\n");
  while (progress_.step < facts_.steps) {
    step();
    if (outside_bytes_ == 0) measure_outside();
    const std::int64_t s = progress_.step;
    if (deck_.evaluation.interval > 0 && (s % deck_.evaluation.interval == 0 || s == facts_.steps))
      evaluate_and_report();
    if (deck_.checkpoint.interval > 0 && s % deck_.checkpoint.interval == 0) save_unless_stuck();
    if (session_.stop_requested()) {
      say(fmt::format("SIGUSR1: the run stops after step {} of {}\n", s, facts_.steps));
      break;
    }
  }
  if (deck_.checkpoint.interval >= 0 && saved_step_ != progress_.step) save_unless_stuck();
  if (outside_bytes_ > 0) report_peak();
  if (!deck_.checkpoint.export_to.empty() && progress_.step >= facts_.steps) export_at_end();
}

void Trainer::report_peak() {
  worker_.held().look();
  const std::int64_t planned = worker_.planned_bytes() + outside_bytes_;
  say(fmt::format("peak memory {} of {} planned (arenas and what is outside the plan)\n{}",
                  format_bytes(static_cast<double>(worker_.held().peak())),
                  format_bytes(static_cast<double>(planned)), worker_.held().peak_text(worker_.memory())));
}

void Trainer::measure_outside() {
  outside_bytes_ = worker_.outside_bytes();
  say(fmt::format("outside the plan {}: {} (measured after one step)\n",
                  format_bytes(static_cast<double>(outside_bytes_)), worker_.held().outside_text()));
}

void Trainer::step() {
  watchdog_->beat("train step");
  StepClock clock;
  const double start = now();
  fill_inputs();
  clock.data = now() - start;
  set_scalars();
  worker_.train().clear_timings();
  worker_.step();
  clock.total = now() - start;
  worker_.held().look();
  clock.save = std::exchange(save_seconds_, 0.0);
  if (deck_.debug.poison) worker_.memory().check_guards();
  ++progress_.step;
  progress_.samples += deck_.batch.global;
  require_tokens();
  const bool found_inf = worker_.scalars().found_inf != 0;
  if (!found_inf) ++progress_.optimizer_steps;
  say(overflow_.after_step(found_inf, progress_.step));
  progress_.loss_scaler = overflow_.state();
  report(clock);
}

/// The loss and the gradient are divided by the number of predicted tokens.
void Trainer::require_tokens() const {
  if (worker_.scalars().valid_tokens > 0) return;
  throw runtime::AgreedError(fmt::format(
      "step {}: none of its {} sequences holds a token that is to be predicted (loss_mask of "
      "data.train); use data.packing = \"documents\", which leaves such documents out, or a larger "
      "batch.global",
      progress_.step, deck_.batch.global));
}

void Trainer::fill_inputs() {
  const std::int64_t micros = config::accumulation_steps(deck_), micro = deck_.batch.micro;
  for (std::int64_t m = 0; m < micros; ++m) {
    const std::int64_t first = progress_.samples + (m * worker_.data_ranks() + worker_.data_index()) * micro;
    sampler_.fill(first, micro, batch_of(worker_.inputs(static_cast<int>(m))));
  }
}

void Trainer::set_scalars() {
  StepScalars& s = worker_.scalars();
  const std::int64_t t = progress_.optimizer_steps;
  s.learning_rate = optim::learning_rate(deck_.schedule, deck_.optimizer.lr, t, facts_.steps);
  s.bias_correction1 = optim::bias_correction(deck_.optimizer.beta1, t + 1);
  s.bias_correction2 = optim::bias_correction(deck_.optimizer.beta2, t + 1);
  s.max_norm = deck_.optimizer.max_norm;
  s.loss_scale = overflow_.loss_scale();
  s.optimizer_step = static_cast<double>(t);
}

void Trainer::report(const StepClock& clock) {
  auto sent = worker_.mesh().bytes_sent();
  std::vector<runtime::Mesh::Sent> this_step = sent;
  for (auto& now_sent : this_step)
    for (const auto& before : sent_before_)
      if (before.axes == now_sent.axes) now_sent.bytes -= before.bytes;
  sent_before_ = std::move(sent);
  if (session_.rank() != 0) return;
  // The first step also touches memory for the first time: it says little about the rest.
  mean_step_seconds_ = progress_.step == 1 || mean_step_seconds_ == 0
                           ? clock.total
                           : 0.9 * mean_step_seconds_ + 0.1 * clock.total;
  const auto record = step_record(worker_, worker_.train().timings(), progress_, facts_, clock, this_step);
  metrics_->write(record);
  if (progress_.step % deck_.metrics.interval == 0 || progress_.step == facts_.steps)
    say(telemetry::step_line(step_line(
            record, facts_, mean_step_seconds_ * static_cast<double>(facts_.steps - progress_.step))) +
        "\n");
}

void Trainer::evaluate_and_report() {
  if (data_.validation.empty()) return;
  const double start = now();
  const Losses losses = evaluate(worker_, deck_, data_.validation, [this] { watchdog_->beat("evaluation"); });
  const bool best = losses.all < progress_.best_validation_loss;
  if (best) progress_.best_validation_loss = losses.all;
  sent_before_ = worker_.mesh().bytes_sent();
  if (session_.rank() == 0) {
    telemetry::EvaluationRecord record{progress_.step, losses.all, {}};
    for (const SetLoss& set : losses.sets) record.sets.emplace_back(set.name, set.loss);
    metrics_->write(record);
  }
  say(fmt::format("step {}: {}{} ({:.1f} s)\n", progress_.step, describe(losses),
                  best ? ", the best so far" : "", now() - start));
}

void Trainer::export_at_end() {
  const std::string& folder = deck_.checkpoint.export_to;
  const bool exists = !session_.from_rank_0(std::filesystem::exists(folder) ? "exists" : "").empty();
  if (steps_at_start_ >= facts_.steps && exists)
    return say(fmt::format("checkpoint.export: '{}' is there already\n", folder));
  const auto refuse = [&](const std::string& why) {
    throw runtime::AgreedError(fmt::format("checkpoint.export: {}", why));
  };
  if (saved_step_ != progress_.step)
    refuse(fmt::format("step {} has no checkpoint, so nothing is exported", progress_.step));
  try {
    export_model(session_, export_request(deck_, saved_),
                 {[this](const std::string& line) { say(line); }, [this] { watchdog_->beat("exporting"); }});
  } catch (const runtime::AgreedError& e) {
    refuse(
        fmt::format("{}\nthe run is complete and its checkpoint stays: `ztrain export {} --to FOLDER` "
                    "writes the model",
                    e.what(), saved_));
  }
}

void Trainer::save_unless_stuck() {
  if (!overflow_.stuck()) return save();
  say(fmt::format(
      "step {}: no checkpoint is written: the last steps were all skipped, and it would replace older ones\n",
      progress_.step));
}

void Trainer::save() {
  watchdog_->beat("saving a checkpoint");
  const double start = now();
  const auto& job = worker_.job();
  const auto shards = worker_.state(true);
  const std::string folder = config::checkpoint_folder(deck_);
  std::int64_t bytes = 0;
  const auto saved = session_.agree("saving a checkpoint", [&] {
    return checkpoint::save(
        folder, progress_.step, place_of(job.load, job.layout), shards,
        to_metadata(progress_, deck_, data::identity_of(data_), version_),
        {static_cast<int>(deck_.checkpoint.files), static_cast<int>(deck_.checkpoint.keep)},
        [&](std::int64_t, std::int64_t total) {
          bytes = total;
          watchdog_->beat("saving a checkpoint");
        });
  });
  saved_step_ = progress_.step;
  saved_ = fmt::format("{}/step_{}", folder, progress_.step);
  // HDF5 is first used here: what it keeps is outside the plan too.
  if (outside_bytes_ > 0) outside_bytes_ = std::max(outside_bytes_, worker_.outside_bytes());
  const double seconds = now() - start;
  save_seconds_ += seconds;
  say(fmt::format("step {}: checkpoint {} ({} by this rank in {:.1f} s)\n", progress_.step, saved_,
                  format_bytes(static_cast<double>(bytes)), seconds));
  if (!saved.warning.empty()) say(fmt::format("step {}: warning: {}\n", progress_.step, saved.warning));
}

}  // namespace ztrain::train
