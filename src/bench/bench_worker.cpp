#include "bench/bench_worker.hpp"

#include <algorithm>
#include <fstream>

#include "base/clock.hpp"
#include "config/validate/validate.hpp"
#include "data/rows/synthetic_rows.hpp"
#include "job/evaluation.hpp"
#include "job/skipped_steps.hpp"
#include "optim/schedule.hpp"

namespace ztrain::bench {
std::string device_name(const runtime::Device& device) {
  return device.name() == "CPU" ? processor_name() : device.name();
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  return "CPU";
}

BenchSteps::BenchSteps(const runtime::Session& session, job::Worker& worker, const config::Deck& deck)
    : session_(session), worker_(worker), deck_(deck) {
  worker_.initialize(static_cast<std::uint64_t>(deck.run.seed));
  fill_inputs();
}

void BenchSteps::fill_inputs() {
  const data::SyntheticRows rows(static_cast<std::uint64_t>(deck_.run.seed), deck_.batch.global,
                                 deck_.data.sequence, deck_.model.vocab_size);
  const std::int64_t micro = deck_.batch.micro;
  data::BatchPart part = job::part_of_batches(worker_, micro * deck_.data.sequence);
  for (std::int64_t m = 0; m < config::accumulation_steps(deck_); ++m) {
    const job::InputAddresses inputs = worker_.inputs(static_cast<int>(m));
    std::ranges::fill(inputs.words, 0);
    std::ranges::fill(inputs.shares, 1.0F / static_cast<float>(deck_.distillation.top_k));
    part.fill(job::batch_of(inputs), [&](const data::MicroBatch& batch) {
      data::fill_in_order(rows, (m * worker_.data_ranks() + worker_.data_index()) * micro, micro, batch);
    });
  }
}

void BenchSteps::set_scalars() {
  StepScalars& s = worker_.scalars();
  s.learning_rate = deck_.optimizer.lr;
  s.bias_correction1 = optim::bias_correction(deck_.optimizer.beta1, steps_ + 1);
  s.bias_correction2 = optim::bias_correction(deck_.optimizer.beta2, steps_ + 1);
  s.max_norm = deck_.optimizer.max_norm;
  s.loss_scale = job::SkippedSteps(deck_).loss_scale();
  s.optimizer_step = static_cast<double>(steps_);
}

BenchSteps::Step BenchSteps::run(engine::OpObserver* observer) {
  set_scalars();
  worker_.device().finish();
  session_.barrier();
  worker_.train().clear_timings();
  const double start = now();
  observer == nullptr ? worker_.step() : worker_.step(*observer);
  const double seconds = now() - start;
  ++steps_;
  const StepScalars& s = worker_.scalars();
  return {seconds, worker_.train().timings(), s.loss, s.found_inf != 0};
}

void set_scalars(job::Worker& worker, const StepScalars& scalars) {
  const program::Job& job = worker.job();
  worker.memory().provider().write(worker.memory().address(job.train(), job.tensors.scalars), &scalars,
                                   sizeof scalars);
}

LaunchClock::LaunchClock(job::Worker& worker)
    : device_(worker.device()), from_(device_.make_event(true)), to_(device_.make_event(true)) {}

double LaunchClock::seconds_of(runtime::Queue queue, const std::function<void()>& launch, int count) {
  device_.finish();
  const double start = now();
  device_.record(from_, queue);
  for (int i = 0; i < count; ++i) device_.submit(queue, launch);
  device_.record(to_, queue);
  device_.finish();
  const double waited = now() - start;
  return device_.seconds(from_, to_).value_or(waited);
}

double LaunchClock::seconds_of(runtime::Queue queue, const engine::Bound& bound, int count) {
  device_.finish();
  const double start = now();
  for (int i = 0; i < count; ++i) communicate(queue, bound);
  device_.finish();
  return now() - start;
}

void LaunchClock::communicate(runtime::Queue queue, const engine::Bound& bound) {
  const bool by_host = !bound.collective->on_device();
  if (bound.launch) device_.submit(queue, bound.launch);
  if (bound.launch && by_host) device_.finish();
  bound.collective->start();
  if (by_host) bound.collective->wait();
}

}  // namespace ztrain::bench
