#pragma once
// The line that a run prints for a step. Everything returns text; Console prints it.

#include <cstdint>
#include <optional>
#include <string>

namespace ztrain::telemetry {

/// NaN prints as "-".
struct StepLine {
  std::int64_t step = 0;
  std::int64_t steps = 0;  ///< of the whole run
  double loss = 0, grad_norm = 0, lr = 0;
  double memory_bytes = 0;   ///< peak of the rank that needs most
  double memory_limit = 0;   ///< bytes; 0: unknown, no percentage
  double tokens_per_s = 0;   ///< over all ranks
  double tflops = 0;         ///< per rank
  double mfu = 0;            ///< 0 to 1
  double data_share = 0;     ///< of the step's time, 0 to 1
  double exposed_share = 0;  ///< communication that computing waited for, of the step's time; NaN: not timed
  double seconds_left = 0;
  /// Of offload, shares of the step's time as well: copies to and from the host's memory, and waiting for
  /// NVMe. Columns of their own where there is some.
  std::optional<double> copied_share, drives_share;
  /// Of a pipeline: what rank 0 waited for messages of other stages; NaN: not timed.
  std::optional<double> bubble_share;
};

/// Column names, aligned with step_line's. Neither ends in a newline.
struct ExtraColumns {
  bool offload = false, pipeline = false;
};
std::string step_header(ExtraColumns extra = {});
std::string step_line(const StepLine& line);

}  // namespace ztrain::telemetry
