#pragma once
// One step of one rank as events of a trace, planned or measured: a track for each stream with its ops, what
// the stream that computes waits for, arrows from what an op waited for, and the memory in use.

#include <string>
#include <vector>

#include "plan/trace/trace_file.hpp"
#include "program/ir/program.hpp"
#include "program/ir/step_times.hpp"

namespace ztrain::plan {

/// Number of the track of what the run does beside its step: reading data, evaluations, saves.
inline constexpr int run_thread = 0;

/// Most slices of a trace, and most points of memory over time: it stays below 200 MB.
inline constexpr std::int64_t most_slices = 300'000, most_points = 60'000;

struct TracedStep {
  const program::Program& step;  ///< with a number for each issue (program::unrolled)
  const program::StepTimes& times;
  int process = 0;
  double zero = 0;                    ///< seconds of `times` at which the trace begins
  double begin = 0;                   ///< of the step; no op is earlier
  std::int64_t slices = most_slices;  ///< that the step may have
  std::int64_t points = most_points;
};

/// Adds the step. If its ops are more than the slices that it may have, those of the micro-batches in the
/// middle are drawn together: ops of a stream one behind the other are one slice, which names the
/// micro-batches. Returns how many micro-batches at the beginning and at the end have all of their ops; -1:
/// all have.
int add_step(TraceFile& trace, const TracedStep& step);

}  // namespace ztrain::plan
