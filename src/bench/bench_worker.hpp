#pragma once
// Gives the benchmark its device, its steps on made-up data, and clocks for work that may run later than it
// is issued.

#include <cstdint>
#include <functional>
#include <string>

#include "config/deck.hpp"
#include "job/worker.hpp"

namespace ztrain::bench {

/// Returns the device's name, such as "NVIDIA H100 80GB HBM3"; for CPU ranks the processor's name in the
/// operating system.
std::string device_name(const runtime::Device& device);
/// Returns the processor's name in the operating system, or "CPU".
std::string processor_name();

/// Steps on one batch of random tokens, which the inputs hold from the start.
class BenchSteps {
 public:
  /// Collective. Draws the weights from the deck's seed.
  BenchSteps(const runtime::Session& session, job::Worker& worker, const config::Deck& deck);

  struct Step {
    double seconds = 0;
    engine::Timings timings;
    double loss = 0;
    bool found_inf = false;
  };
  /// Collective. Takes one optimizer step, from a barrier until the loss is on the host. The observer looks
  /// at its ops, if it is given.
  Step run(engine::OpObserver* observer = nullptr);

 private:
  void fill_inputs();
  void set_scalars();

  const runtime::Session& session_;
  job::Worker& worker_;
  const config::Deck& deck_;
  std::int64_t steps_ = 0;
};

/// Sets the step scalars that kernels read. No work may be under way.
void set_scalars(job::Worker& worker, const StepScalars& scalars);

/// Times launches on one of a device's queues, by the device's own events if it has any.
class LaunchClock {
 public:
  explicit LaunchClock(job::Worker& worker);

  /// Returns the seconds that `count` launches take, one after the other, on an idle device.
  double seconds_of(runtime::Queue queue, const std::function<void()>& launch, int count);
  /// Returns the same for a collective, including what is launched before it.
  double seconds_of(runtime::Queue queue, const engine::Bound& bound, int count);

 private:
  void communicate(runtime::Queue queue, const engine::Bound& bound);

  runtime::Device& device_;
  runtime::Event from_ = 0, to_ = 0;
};

}  // namespace ztrain::bench
