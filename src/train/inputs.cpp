#include "train/inputs.hpp"

#include "base/clock.hpp"
#include "base/error.hpp"
#include "config/validate/validate.hpp"
#include "job/evaluation.hpp"

namespace ztrain::train {

Inputs::Inputs(Run& run)
    : run_(run), part_(job::part_of_batches(run.worker, run.deck.batch.micro * run.deck.data.sequence)) {}

/// Returns the number of the first sample of this rank in a micro-batch of the step whose samples begin at
/// `samples`.
std::int64_t Inputs::first_sample(std::int64_t samples, std::int64_t micro_batch) const {
  return samples +
         (micro_batch * run_.worker.data_ranks() + run_.worker.data_index()) * run_.deck.batch.micro;
}

void Inputs::fill() {
  const double start = now();
  const std::int64_t micros = config::accumulation_steps(run_.deck), micro = run_.deck.batch.micro;
  for (std::int64_t m = 0; m < micros; ++m)
    part_.fill(job::batch_of(run_.worker.inputs(static_cast<int>(m))), [&](const data::MicroBatch& batch) {
      run_.sampler.fill(first_sample(run_.progress.samples, m), micro, batch);
    });
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

}  // namespace ztrain::train
