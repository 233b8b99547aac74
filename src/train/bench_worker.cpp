#include "train/bench_worker.hpp"

#include <chrono>
#include <fstream>

#include "config/validate.hpp"
#include "data/synthetic_rows.hpp"
#include "optim/schedule.hpp"
#include "train/evaluation.hpp"
#include "train/overflow.hpp"

namespace ztrain::train {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string device_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  return "CPU";
}

BenchSteps::BenchSteps(const runtime::Session& session, Worker& worker, const config::Deck& deck)
    : session_(session), worker_(worker), deck_(deck) {
  worker_.initialize(static_cast<std::uint64_t>(deck.run.seed));
  fill_inputs();
}

void BenchSteps::fill_inputs() {
  const data::SyntheticRows rows(static_cast<std::uint64_t>(deck_.run.seed), deck_.batch.global,
                                 deck_.data.sequence, deck_.model.vocab_size);
  const std::int64_t micro = deck_.batch.micro;
  for (std::int64_t m = 0; m < config::accumulation_steps(deck_); ++m)
    data::fill_in_order(rows, (m * worker_.data_ranks() + worker_.data_index()) * micro, micro,
                        batch_of(worker_.inputs(static_cast<int>(m))));
}

void BenchSteps::set_scalars() {
  StepScalars& s = worker_.scalars();
  s.learning_rate = deck_.optimizer.lr;
  s.bias_correction1 = optim::bias_correction(deck_.optimizer.beta1, steps_ + 1);
  s.bias_correction2 = optim::bias_correction(deck_.optimizer.beta2, steps_ + 1);
  s.max_norm = deck_.optimizer.max_norm;
  s.loss_scale = Overflow(deck_).loss_scale();
  s.optimizer_step = static_cast<double>(steps_);
}

BenchSteps::Step BenchSteps::run() {
  set_scalars();
  session_.barrier();
  worker_.train().clear_timings();
  const double start = now();
  worker_.train().run();
  const StepScalars& s = worker_.scalars();
  ++steps_;
  return {now() - start, worker_.train().timings(), s.loss, s.found_inf != 0};
}

MemoryUse memory_use(const Worker& worker) {
  return {worker.memory().total_bytes(), worker.outside_bytes(), runtime::peak_resident_bytes()};
}

void set_scalars(Worker& worker, const StepScalars& scalars) {
  worker.scalars() = scalars;
}

double seconds_of(Worker& worker, const std::function<void()>& launch, int count) {
  (void)worker;
  const double start = now();
  for (int i = 0; i < count; ++i) launch();
  return now() - start;
}

}  // namespace ztrain::train
