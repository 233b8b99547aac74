#pragma once
// Records steps: those of profile.steps for a trace, and that of metrics.timeline_step.

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "program/ir/step_times.hpp"
#include "train/run.hpp"

namespace ztrain::train {

/// Records a rank from the first of the steps to the end of the last one's turn: what comes behind a step,
/// until the next one begins, belongs to it. Outside of these steps each call is a test.
class StepProfile {
 public:
  explicit StepProfile(Run& run) : run_(run) {}

  /// Takes a step by `work`. Collective. Before the first step ranks' clocks are compared; throws AgreedError
  /// where no times can be noted.
  template <class Work>
  void step(const Work& work) {
    if (!is_on(run_.progress.step + 1)) return work();
    begin_step();
    const double begin = now();
    work();
    end_step(begin);
  }
  /// Does what comes between steps, which the trace names.
  template <class Work>
  void beside(const char* name, const Work& work) {
    const double begin = now();
    work();
    if (is_on(run_.progress.step) && !steps_.empty()) beside_.push_back({name, begin, now()});
  }
  /// Behind a step and what belongs to it. Collective. Behind the last of the steps each rank writes its
  /// trace.
  void end_turn();

 private:
  struct Stretch {
    std::string name;
    double begin = 0, end = 0;
  };
  /// runs: more than one if the step is taken again.
  struct Step {
    Stretch stretch;
    std::vector<program::StepTimes> runs;
  };

  bool is_on(std::int64_t step) const { return run_.deck.profile.contains(step); }
  void begin_step();
  void end_step(double begin);
  void write() const;

  Run& run_;
  double zero_ = 0;  ///< this rank's clock at the time at which the traces of all ranks begin
  std::vector<Step> steps_;
  std::vector<Stretch> beside_;
};

/// Collective. Takes a step and writes its timeline to run.output/timeline.json, in the form in which `ztrain
/// plan --json` gives the planned one. It has the work of the first rank of every stage, in seconds of rank
/// 0's clock from rank 0's begin. Throws AgreedError if work runs later than it is issued, or if the file
/// cannot be written.
void step_with_timeline(Run& run);

}  // namespace ztrain::train
