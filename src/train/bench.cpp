#include "train/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/validate.hpp"
#include "model/family.hpp"
#include "plan/setup.hpp"

namespace ztrain::train {
namespace {

config::Arithmetic arithmetic_of(const config::Deck& deck) {
  using config::Arithmetic;
  if (deck.precision.fp8 != "none") return Arithmetic::fp8;
  switch (deck.precision.parameters) {
    case DType::f64:
      return Arithmetic::fp64;
    case DType::f32:
      return deck.device.tf32 ? Arithmetic::tf32 : Arithmetic::fp32;
    default:
      return Arithmetic::bits16;
  }
}

/// What the deck says wins over what is known of the device.
Peak peak_of(const config::Deck& deck, const std::string& device) {
  Peak peak;
  peak.arithmetic = arithmetic_of(deck);
  if (deck.cluster.peak_tflops > 0) {
    peak.flops_per_second = deck.cluster.peak_tflops * 1e12;
    peak.source = "cluster.peak_tflops";
  } else if (const double known = config::device_peak(device, peak.arithmetic); known > 0) {
    peak.flops_per_second = known * 1e12;
    peak.source = device;
  }
  return peak;
}

void take_steps(const runtime::Session& session, Worker& worker, const config::Deck& deck,
                const BenchRequest& request, Bench& bench) {
  BenchSteps steps(session, worker, deck);
  std::vector<BenchSteps::Step> timed;
  for (int i = -request.warmup; i < request.steps; ++i) {
    const BenchSteps::Step step = steps.run();
    if (!std::isfinite(step.loss) && !step.found_inf)  // the same on every rank
      throw runtime::AgreedError(fmt::format("step {} of the benchmark has the loss {}: lower optimizer.lr",
                                             i + request.warmup + 1, step.loss));
    if (i >= 0) timed.push_back(step);
  }
  for (const BenchSteps::Step& step : timed) bench.seconds.push_back(step.seconds);
  const auto middle = timed.begin() + static_cast<std::ptrdiff_t>(timed.size() / 2);
  std::nth_element(timed.begin(), middle, timed.end(),
                   [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  bench.median = *middle;
}

}  // namespace

Bench run_bench(const runtime::Session& session, const config::Deck& deck, const BenchRequest& request) {
  const model::Graph graph = plan::training_graph(deck);
  Worker worker(session, compile_and_verify(session, graph, plan::job_spec(deck, build_target())), &deck,
                deck.debug.poison);
  Bench bench;
  bench.device = device_name();
  bench.ranks = session.size();
  bench.tokens = config::tokens_per_step(deck);
  bench.parameters = worker.job().layout.parameter_count();
  bench.model_flops = model::flops_per_token(deck.model, graph, deck.data.sequence);
  for (const program::Op& op : worker.job().train.ops) bench.executed_flops += op.flops;
  bench.peak = peak_of(deck, bench.device);
  take_steps(session, worker, deck, request, bench);
  bench.memory = memory_use(worker);
  bench.ceiling = measure_ceiling(worker);
  if (request.kernels) bench.kernels = measure_kernels(session, worker);
  return bench;
}

}  // namespace ztrain::train
