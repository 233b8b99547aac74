#pragma once
// The benchmark's hold on a Worker: what it runs on, steps on made-up data, and a clock for work that may be
// asynchronous.

#include <cstdint>
#include <functional>
#include <string>

#include "config/deck.hpp"
#include "train/worker.hpp"

namespace ztrain::train {

/// "NVIDIA H100 80GB HBM3"; of CPU ranks what the operating system calls the processor.
std::string device_name();

/// Steps on one batch of random tokens, which the inputs hold from the start.
class BenchSteps {
 public:
  /// Collective: draws the weights from the deck's seed.
  BenchSteps(const runtime::Session& session, Worker& worker, const config::Deck& deck);

  struct Step {
    double seconds = 0;
    engine::Timings timings;
    double loss = 0;
    bool found_inf = false;
  };
  /// Collective: one optimizer step, from a point that all ranks have reached to its end.
  Step run();

 private:
  void fill_inputs();
  void set_scalars();

  const runtime::Session& session_;
  Worker& worker_;
  const config::Deck& deck_;
  std::int64_t steps_ = 0;
};

/// Bytes of this rank's device: planned, beside the plan, and the largest use so far.
struct MemoryUse {
  std::int64_t planned = 0, outside = 0, peak = 0;
};
MemoryUse memory_use(const Worker& worker);

/// The scalars of the step as a kernel reads them. No work is under way.
void set_scalars(Worker& worker, const StepScalars& scalars);

/// Seconds that `count` launches take, one after the other.
double seconds_of(Worker& worker, const std::function<void()>& launch, int count);

}  // namespace ztrain::train
