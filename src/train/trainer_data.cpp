// What a run's steps train on: read between them, and asked for while the device computes.
#include "base/clock.hpp"
#include "base/error.hpp"
#include "config/validate/validate.hpp"
#include "job/evaluation.hpp"
#include "train/trainer.hpp"

namespace ztrain::train {

/// The number of the first sample of this rank in a micro-batch of the step whose samples begin at `samples`.
std::int64_t Trainer::first_sample(std::int64_t samples, std::int64_t micro_batch) const {
  return samples + (micro_batch * worker_.data_ranks() + worker_.data_index()) * deck_.batch.micro;
}

void Trainer::fill_inputs() {
  const double start = now();
  const std::int64_t micros = config::accumulation_steps(deck_), micro = deck_.batch.micro;
  for (std::int64_t m = 0; m < micros; ++m)
    part_.fill(job::batch_of(worker_.inputs(static_cast<int>(m))), [&](const data::MicroBatch& batch) {
      sampler_.fill(first_sample(progress_.samples, m), micro, batch);
    });
  data_seconds_ = now() - start;
}

/// Before the ranks ask each other whether to stop: one that has no data for its next step says so there, and
/// all save the step that they have done.
void Trainer::fill_next_inputs() {
  if (!failure_.empty()) return;
  const telemetry::Phase phase(console_, "reading the data of step", progress_.step + 1);
  try {
    fill_inputs();
  } catch (const Error& e) {
    failure_ = e.what();
  }
}

/// The files' system reads the next step's samples while this one is computed, so that they come from memory
/// behind it.
void Trainer::read_ahead() const {
  if (progress_.step + 1 >= facts_.steps) return;
  const std::int64_t next = progress_.samples + deck_.batch.global;
  for (std::int64_t m = 0; m < config::accumulation_steps(deck_); ++m)
    sampler_.read_ahead(first_sample(next, m), deck_.batch.micro);
}

}  // namespace ztrain::train
