#include "train/step_profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/shape.hpp"
#include "checkpoint/rank_group.hpp"
#include "plan/memory.hpp"
#include "plan/report/report.hpp"
#include "plan/trace/planned.hpp"
#include "plan/trace/step_trace.hpp"
#include "program/ir/work.hpp"
#include "program/loops/repeat.hpp"
#include "runtime/session/clock_ahead.hpp"
#include "train/output_folder.hpp"

namespace ztrain::train {
namespace {

/// Seconds of the trace before its first step, for the difference of clocks that remains.
constexpr double before_first = 1e-3;

/// Collective. Throws AgreedError, which names the key, where an op's times are not known as it is issued.
void require_times(const Run& run, const char* key, const std::string& off) {
  run.session.agree(key, [&] {
    REQUIRE(!run.worker.device().asynchronous(),
            "{}: what runs later than it is issued, as on GPUs, has no times here: set it to {}", key, off);
  });
}

/// Collective. All ranks begin. Returns the time at which rank 0 began, by this rank's clock.
double begin_together(const runtime::Session& session) {
  const double ahead = runtime::clock_ahead(session);
  session.barrier();
  return parse_json(session.from_rank_0(json_text(nlohmann::json(now())))).get<double>() + ahead;
}

/// Returns whether the rank speaks for its stage.
bool is_first(const job::Worker& worker) {
  const program::Program& train = worker.job().train();
  const Coordinate at(train.mesh, train.rank);
  return at.rank() % (train.mesh.ranks() / train.mesh[Axis::pipeline]) ==
         0;  // pipeline is the outermost axis
}

/// Returns what the recorded runs computed.
program::WorkList work_of(engine::Executor& train) {
  const program::Issues issues(train.program());
  program::WorkList work;
  for (const program::StepTimes& run : train.recorder().runs())
    for (program::OpId issue = 0; issue < issues.size(); ++issue)
      if (!issues.op(issue).communicates())
        work.add(issues.action(issue), run.ops[at(issue)].begin, run.ops[at(issue)].end);
  return work;
}

}  // namespace

void StepProfile::begin_step() {
  if (steps_.empty()) {
    require_times(run_, "profile.steps", "[]");
    zero_ = begin_together(run_.session) - before_first;
  }
  run_.worker.train().recorder().turn(true);
}

void StepProfile::end_step(double begin) {
  engine::StepRecorder& recorder = run_.worker.train().recorder();
  recorder.turn(false);
  steps_.push_back({{fmt::format("step {}", run_.progress.step + 1), begin, now()}, recorder.runs()});
}

void StepProfile::end_turn() {
  if (steps_.empty()) return;
  const bool last = static_cast<double>(run_.progress.step) >= run_.deck.profile.steps[1];
  if (!last && !run_.is_complete()) return;
  run_.session.agree("profile.steps", [&] { write(); });
  run_.print("step {}: the trace of {} is in {}\n", run_.progress.step,
             steps_.size() == 1 ? "the step" : fmt::format("{} steps", steps_.size()),
             (std::filesystem::path(run_.deck.run.output) / trace_folder_name).string());
  steps_.clear();
  beside_.clear();
}

void StepProfile::write() const {
  const std::filesystem::path folder = std::filesystem::path(run_.deck.run.output) / trace_folder_name;
  const int rank = run_.session.rank();
  const program::Program step = program::unrolled(run_.worker.train().program());
  plan::TraceFile trace;
  trace.name_process(rank, fmt::format("rank {} on {}", rank, run_.session.host()));
  trace.name_thread({rank, plan::run_thread}, "run");
  plan::TraceFacts facts{"run", run_.deck.path, {}};
  const auto draw = [&](const Stretch& s) {
    trace.slice({rank, plan::run_thread}, s.name, "run", plan::nanoseconds(s.begin - zero_),
                plan::nanoseconds(s.end - zero_), "{}");
  };
  for (const Stretch& stretch : beside_) draw(stretch);
  const auto share = static_cast<std::int64_t>(steps_.size());
  for (const Step& one : steps_) {
    draw(one.stretch);
    facts.step_seconds.push_back(one.stretch.end - one.stretch.begin);
    facts.bounds.push_back(one.stretch.begin - zero_);
    facts.bounds.push_back(one.stretch.end - zero_);
    for (const program::StepTimes& times : one.runs)
      facts.whole_micro_batches =
          std::max(facts.whole_micro_batches, plan::add_step(trace, {.step = step,
                                                                     .times = times,
                                                                     .process = rank,
                                                                     .zero = zero_,
                                                                     .begin = one.stretch.begin,
                                                                     .slices = plan::most_slices / share,
                                                                     .points = plan::most_points / share}));
  }
  facts.planned_bytes = plan::memory_of(run_.worker.job().programs.all()).total(program::Tier::device);
  in_folder(folder, [&] {
    OutputFile file =
        OutputFile::create((folder / fmt::format("rank{}_trace.json", rank)).string(), "profile.steps");
    trace.write(file, plan::json_of(facts));
  });
}

void step_with_timeline(Run& run) {
  require_times(run, "metrics.timeline_step", "0");
  const double begin = begin_together(run.session);
  engine::StepRecorder& recorder = run.worker.train().recorder();
  recorder.turn(true);
  run.worker.step();
  recorder.turn(false);
  const auto texts = checkpoint::Group::world().gather_text(
      is_first(run.worker)
          ? json_text(nlohmann::json{{"rank", run.worker.job().train().rank},
                                     {"work", plan::work_json(work_of(run.worker.train()), begin)}})
          : "");
  run.session.agree("metrics.timeline_step", [&] {
    if (run.session.rank() != 0) return;
    nlohmann::json ranks = nlohmann::json::array();
    for (const std::string& text : texts)
      if (!text.empty()) ranks.push_back(parse_json(text));
    const nlohmann::json whole{
        {"schedule", run.deck.mesh.pipeline > 1 ? run.deck.pipeline.schedule : "sequential"},
        {"step", run.deck.metrics.timeline_step},
        {"ranks", std::move(ranks)}};
    write_text(std::filesystem::path(run.deck.run.output) / timeline_name, json_text(whole), "run.output");
  });
}

}  // namespace ztrain::train
