#include "train/run_output.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/clock.hpp"
#include "base/text.hpp"
#include "config/text/print.hpp"
#include "config/validate/validate.hpp"
#include "files/lustre.hpp"
#include "train/report.hpp"

namespace ztrain::train {

void RunOutput::hold_folders(const Patience& patience) {
  const std::filesystem::path output(run_.deck.run.output);
  make_writable(output, "run.output");
  folders_.push_back(hold(output, "run.output", run_.session.host(), patience));
  if (run_.deck.checkpoint.interval < 0) return;
  const std::string folder = config::checkpoint_folder(run_.deck);
  const bool is_new = !std::filesystem::exists(folder);
  make_writable(folder, "checkpoint.folder");
  const std::string stripes = is_new ? spread_files_of(folder, is_lustre(folder)) : "";
  if (!stripes.empty()) run_.print("{}\n", stripes);
  if (!std::filesystem::equivalent(folder, output))
    folders_.push_back(hold(folder, "checkpoint.folder", run_.session.host(), patience));
}

void RunOutput::begin(const std::set<std::int64_t>& damaged) {
  if (run_.deck.checkpoint.interval >= 0) {
    const std::string aside =
        move_aside(config::checkpoint_folder(run_.deck), run_.progress.step, ".previous", damaged);
    if (!aside.empty()) run_.print("checkpoints beyond step {} are now in {}\n", run_.progress.step, aside);
  }
  for (const FileRequest& old : take_requests(run_.deck.run.output))
    run_.print("{} of {} is older than this run, which takes no notice of it{}\n", old.path, old.owner,
               old.why_kept.empty() ? " and has removed it"
                                    : fmt::format("; it cannot be removed: {}", old.why_kept));
  write_resolved_deck();
  metrics_.emplace(run_.deck.run.output,
                   run_.progress.step > 0 ? std::optional(run_.progress.step) : std::nullopt,
                   [this] { folders_.front().hold_again(); });
  if (!metrics_->previous().empty())
    run_.print("the metrics of the run before are now in {}\n", metrics_->previous());
}

void RunOutput::write_resolved_deck() const {
  write_text(std::filesystem::path(run_.deck.run.output) / resolved_deck_name,
             config::resolved_toml(run_.deck), "run.output");
}

void RunOutput::report_step() {
  const StepClock& clock = run_.clock;
  auto sent = run_.worker.mesh().bytes_sent();
  std::vector<runtime::Mesh::Sent> this_step = sent;
  for (auto& now_sent : this_step)
    for (const auto& before : sent_before_)
      if (before.axes == now_sent.axes) now_sent.bytes -= before.bytes;
  sent_before_ = std::move(sent);
  run_.console.print(stragglers_.after_step(run_.progress.step, run_.worker.train().timings(), clock));
  if (run_.session.rank() != 0) return;
  mean_step_.add(clock.total);
  const auto record = step_record(run_, run_.worker.train().timings(), this_step);
  verdict_.add(record.seconds);
  last_line_ = telemetry::step_line(step_line(record, run_.facts, seconds_left())) + "\n";
  if (run_.progress.step % run_.deck.metrics.interval == 0 || run_.progress.step == run_.facts.steps)
    print_last_line();
  write(record);
}

void RunOutput::report_evaluation(const job::Losses& losses) {
  if (run_.session.rank() != 0) return;
  const job::Progress& p = run_.progress;
  telemetry::EvaluationRecord record{p.step, losses.all};
  record.epoch = run_.epochs();
  record.tokens = config::tokens_of(run_.deck, p.samples, p.earlier);
  if (losses.experts) record.balance_loss = losses.experts->balance, record.z_loss = losses.experts->z;
  if (losses.pairs) record.pairs = record_of(*losses.pairs, run_.deck.preference.loss_type);
  for (const job::SetLoss& set : losses.sets) record.sets.emplace_back(set.name, set.loss);
  if (run_.deck.evaluation.patience > 0) record.without_improvement = p.evaluations_without_improvement;
  record.ends_run = run_.is_out_of_patience();
  write(record);
}

template <class Record>
void RunOutput::write(const Record& record) {
  try {
    folders_.front().hold_again();
    const std::string note = metrics_->write(record);
    if (note.empty()) return;
    run_.print("step {}: warning: {}\n", run_.progress.step, note);
    write_resolved_deck();
  } catch (const Error& e) {
    run_.failure = e.what();
  }
}

template void RunOutput::write(const telemetry::CorruptionRecord& record);

void RunOutput::print_last_line() {
  run_.console.print(std::exchange(last_line_, ""));
}

/// Returns the seconds until the last step, or until the run ends itself.
double RunOutput::seconds_left() const {
  const double steps = mean_step_.seconds() * static_cast<double>(run_.facts.steps - run_.progress.step);
  return std::min(steps, limits_.seconds_left(run_.session.lasts(), wall_clock()).value_or(steps));
}

void RunOutput::report_outside() {
  if (outside_bytes_ != 0) return;
  outside_bytes_ = run_.worker.outside_bytes();
  run_.print("outside the plan {}: {} (measured after one step)\n", format_bytes(outside_bytes_),
             run_.worker.held().outside_text());
}

void RunOutput::measure_outside() {
  if (outside_bytes_ > 0) outside_bytes_ = std::max(outside_bytes_, run_.worker.outside_bytes());
}

void RunOutput::report_peak() {
  if (const std::string text = verdict_.text(); !text.empty()) run_.print("{} (rank 0)\n", text);
  run_.console.print(stragglers_.over_the_run());
  if (outside_bytes_ <= 0) return;
  run_.worker.held().look();
  const std::int64_t planned = run_.worker.planned_bytes() + outside_bytes_;
  run_.print("peak memory {} of {} planned (arenas and what is outside the plan)\n{}",
             format_bytes(run_.worker.held().peak()), format_bytes(planned),
             run_.worker.held().peak_text(run_.worker.memory()));
}

}  // namespace ztrain::train
