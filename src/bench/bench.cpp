#include "bench/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "config/validate/validate.hpp"
#include "model/family.hpp"
#include "plan/setup.hpp"

namespace ztrain::bench {
namespace {

constexpr int warm_steps = 2;  ///< steps before one whose ops are timed

void require_loss(const BenchSteps::Step& step) {
  if (!std::isfinite(step.loss) && !step.found_inf)  // all ranks have the same loss
    throw runtime::AgreedError(
        fmt::format("a step of the benchmark has the loss {}: lower optimizer.lr", step.loss));
}

/// A worker for the deck. With `timed`, every op has a clock on devices that run work later than it is
/// issued.
class Machinery {
 public:
  Machinery(const runtime::Session& session, telemetry::Console& console, const config::Deck& deck,
            const model::Graph& graph, bool timed)
      : console_(console),
        preparing_(std::in_place, console, "preparing memory, kernels and weights"),
        worker_{session,
                job::compile_and_verify(
                    session, console, graph,
                    session.agree("planning the job", [&] { return plan::job_spec(deck, build_target()); })),
                &deck, options_of(deck, timed), job::open_device(session, deck, preparing_)},
        steps_(session, worker_, deck) {
    preparing_.reset();
  }

  job::Worker& worker() { return worker_; }
  telemetry::Console& console() { return console_; }
  BenchSteps::Step step() {
    const telemetry::Phase phase(console_, "step", ++count_, [this] { return worker_.position(); });
    const BenchSteps::Step step = steps_.run();
    require_loss(step);
    return step;
  }

 private:
  static job::WorkerOptions options_of(const config::Deck& deck, bool timed) {
    job::WorkerOptions options = job::worker_options(deck);
    options.timed = timed;
    if (timed) options.device.cuda_graphs = "none";  // ops inside a graph cannot be timed
    return options;
  }

  telemetry::Console& console_;
  std::optional<telemetry::Phase> preparing_;  ///< lives while the members below are made
  job::Worker worker_;
  BenchSteps steps_;
  std::int64_t count_ = 0;
};

void describe(Bench& bench, const config::Deck& deck, const model::Graph& graph, job::Worker& worker) {
  bench.device = device_name(worker.device());
  bench.asynchronous = worker.device().asynchronous();
  bench.tokens = config::tokens_per_step(deck);
  bench.parameters = worker.job().layout.parameter_count();
  bench.model_flops = model::flops_per_token(deck.model, graph, deck.data.sequence);
  bench.executed_flops = program::flops_of(worker.job().train());
  bench.peak = job::peak_of(deck, bench.device);
  bench.fp8_peak = job::fp8_peak_of(deck, bench.device);
  bench.notes = worker.notes();
}

/// Notes that steps with gradients that are not finite say less than they seem to.
void note_skipped(const std::vector<BenchSteps::Step>& timed, Bench& bench) {
  const auto skipped = std::ranges::count_if(timed, [](const auto& step) { return step.found_inf; });
  if (skipped == 0) return;
  bench.notes.push_back(
      {"steps",
       fmt::format("{} of {} timed steps were skipped, since their gradients were not finite: their time has "
                   "no optimizer in it, and numbers that are not finite may take longer than others; lower "
                   "optimizer.lr or loss_scaling.initial_scale_power, or give more --warmup",
                   skipped, timed.size()),
       true});
}

void take_steps(Machinery& machinery, const BenchRequest& request, Bench& bench) {
  job::Worker& worker = machinery.worker();
  bench.memory.planned = worker.planned_bytes();
  std::vector<BenchSteps::Step> timed;
  for (int i = 0; i < request.warmup + request.steps; ++i) {
    const BenchSteps::Step step = machinery.step();
    worker.held().look();
    if (i == 0) bench.memory.outside = worker.outside_bytes();
    if (i >= request.warmup) timed.push_back(step);
  }
  bench.memory.peak = worker.held().peak();
  bench.memory.arenas = worker.held().arenas();
  for (const BenchSteps::Step& step : timed) bench.seconds.push_back(step.seconds);
  note_skipped(timed, bench);
  const auto middle = timed.begin() + static_cast<std::ptrdiff_t>(timed.size() / 2);
  std::nth_element(timed.begin(), middle, timed.end(),
                   [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  bench.median = bench.parts = *middle;
}

void take_apart(const runtime::Session& session, Machinery& machinery, const BenchRequest& request,
                Bench& bench) {
  telemetry::Phase phase(machinery.console(), "timing kernels alone");
  bench.ceiling = measure_ceiling(machinery.worker());
  if (request.kernels) bench.kernels = measure_kernels(session, machinery.worker(), phase);
}

}  // namespace

Bench run_bench(const runtime::Session& session, telemetry::Console& console, const config::Deck& deck,
                const BenchRequest& request) {
  const model::Graph graph = plan::training_graph(deck);
  Bench bench;
  bench.ranks = session.size();
  {
    Machinery machinery(session, console, deck, graph, false);
    describe(bench, deck, graph, machinery.worker());
    take_steps(machinery, request, bench);
    if (!bench.asynchronous) take_apart(session, machinery, request, bench);
  }
  if (!bench.asynchronous) return bench;
  // Clocks around every op cost time, so other steps are timed by op. The two jobs run one after the other,
  // because both at once might not fit.
  Machinery machinery(session, console, deck, graph, true);
  for (int i = 0; i < warm_steps; ++i) machinery.step();
  bench.parts = machinery.step();
  take_apart(session, machinery, request, bench);
  return bench;
}

}  // namespace ztrain::bench
