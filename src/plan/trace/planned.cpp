#include "plan/trace/planned.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/shape.hpp"
#include "plan/setup.hpp"
#include "plan/trace/step_trace.hpp"
#include "program/jobs/compile.hpp"
#include "program/loops/repeat.hpp"

namespace ztrain::plan {
namespace {

std::vector<program::Program> train_steps(const Cost& cost) {
  const model::Graph graph = training_graph(cost.deck);
  program::JobSpec spec = with_stages(graph, job_spec(cost.deck, cost.machine.target));
  spec.proven = false;
  const int stages = cost.mesh[Axis::pipeline], ranks = cost.mesh.ranks() / stages;
  std::vector<program::Program> steps;
  for (int s = 0; s < stages; ++s)
    steps.push_back(std::move(program::compile(graph, spec, s * ranks).programs.at(program::train_name)));
  return steps;
}

std::string name_of_process(const Cost& cost, std::size_t stage, int rank) {
  return cost.stages.empty() ? fmt::format("rank {} (planned)", rank)
                             : fmt::format("rank {} (planned): {}", rank, cost.stages[stage].blocks);
}

}  // namespace

nlohmann::ordered_json json_of(const TraceFacts& f) {
  return {{"source", f.source},
          {"deck", f.deck},
          {"step_seconds", f.step_seconds},
          {"bounds", f.bounds},
          {"device_limit", f.device_limit},
          {"planned_bytes", f.planned_bytes},
          {"whole_micro_batches", f.whole_micro_batches}};
}

void write_trace(const Cost& cost, const std::string& deck, OutputFile& file) {
  const std::vector<program::Program> steps = train_steps(cost);
  std::vector<const program::Program*> programs;
  for (const program::Program& step : steps) programs.push_back(&step);
  std::vector<program::StepTimes> times;
  double seconds = 0;
  for (const Simulation& s : simulate_stages(programs, cost.machine, &times))
    seconds = std::max(seconds, s.seconds);
  TraceFacts facts{"plan", deck, {cost.step.seconds}};
  TraceFile trace;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const int rank = steps[s].rank;
    trace.name_process(rank, name_of_process(cost, s, rank));
    const auto share = static_cast<std::int64_t>(steps.size());
    facts.whole_micro_batches =
        std::max(facts.whole_micro_batches,
                 add_step(trace, {.step = program::unrolled(steps[s]),
                                  .times = times[s],
                                  .process = rank,
                                  .slices = most_slices / share,
                                  .points = std::max<std::int64_t>(most_points / share, 100)}));
  }
  facts.device_limit = cost.machine.device_memory;
  facts.planned_bytes = cost.largest(program::Tier::device).total(program::Tier::device);
  facts.bounds = {0, seconds};
  trace.write(file, json_of(facts));
}

}  // namespace ztrain::plan
