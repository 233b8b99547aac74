#pragma once
// Formats the line that a run prints for a step. Console prints it.

#include <cstdint>
#include <optional>
#include <string>

namespace ztrain::telemetry {

/// Numbers of a step's line. NaN prints as "-".
struct StepLine {
  std::int64_t step = 0;
  std::int64_t steps = 0;  ///< steps of the whole run
  double loss = 0, grad_norm = 0, lr = 0;
  double memory_bytes = 0;  ///< peak of the rank that needs most
  double memory_limit = 0;  ///< bytes; 0: unknown, so no percentage is printed
  double tokens_per_s = 0;  ///< tokens per second of all ranks
  double tflops = 0;        ///< TFLOP/s of one rank
  double mfu = 0;           ///< 0 to 1
  double data_share = 0;    ///< share of the step's time, 0 to 1
  /// Share of the step's time that computing waited for communication; NaN: not timed.
  double exposed_share = 0;
  double seconds_left = 0;
  /// Shares of the step's time for offload: copies to and from the host's memory, and waiting for NVMe. They
  /// are columns if they have values.
  std::optional<double> copied_share, drives_share;
  /// Share of the step's time that rank 0 waited for messages of other pipeline stages; NaN: not timed.
  std::optional<double> bubble_share;
  /// Balance loss per token, and load of the fullest expert over the mean.
  std::optional<double> balance_loss, expert_load_max;
  /// Means over pairs of answers.
  std::optional<double> margin, accuracy;
};

/// Returns the column names, aligned with step_line's. Neither ends in a newline.
struct ExtraColumns {
  bool offload = false, pipeline = false, experts = false, pairs = false;
};
std::string step_header(ExtraColumns extra = {});
std::string step_line(const StepLine& line);

}  // namespace ztrain::telemetry
