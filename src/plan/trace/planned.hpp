#pragma once
// The step that a plan foresees, as a trace.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "files/file.hpp"
#include "plan/cost.hpp"

namespace ztrain::plan {

/// Facts of a whole trace ("otherData"), planned or measured, for tools/compare_plan.py and plot_plan.py.
struct TraceFacts {
  std::string source;                ///< plan | run
  std::string deck;                  ///< its path
  std::vector<double> step_seconds;  ///< of each step in the trace
  double device_limit = 0;           ///< bytes of a rank's device; 0: unknown
  std::int64_t planned_bytes = 0;    ///< of the device's tier, of the rank or of the one that needs most
  std::vector<double> bounds{};      ///< steps' begins and ends, in seconds of the trace
  int whole_micro_batches = -1;      ///< what plan::add_step gives
};
nlohmann::ordered_json json_of(const TraceFacts& facts);

/// Writes the step of `ztrain plan`: a process for a rank of each stage of the pipeline, or for rank 0. It
/// compiles the train step of these again.
void write_trace(const Cost& cost, const std::string& deck, OutputFile& file);

}  // namespace ztrain::plan
