#pragma once
// A run's lines, metrics and other files, except checkpoints.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "job/evaluation.hpp"
#include "telemetry/metrics_file.hpp"
#include "telemetry/verdict.hpp"
#include "train/output_folder.hpp"
#include "train/run.hpp"
#include "train/stragglers.hpp"
#include "train/time_limits.hpp"

namespace ztrain::train {

/// Prints the lines of a run's steps and writes run.output. Owns the holds on the folders and the metrics
/// file, at rank 0 alone, and what is measured from step to step. Run and limits outlive it.
class RunOutput {
 public:
  RunOutput(Run& run, const TimeLimits& limits)
      : run_(run),
        limits_(limits),
        verdict_(!run.worker.device().asynchronous()),
        stragglers_(run.deck, run.session, run.worker.mesh().shape()) {}

  /// Makes and holds run.output and the folder of checkpoints; at rank 0. Throws Error.
  void hold_folders(const Patience& patience);
  /// Holds the folder of checkpoints again if somebody has removed it; at rank 0. Throws Error.
  void hold_checkpoints_again() { folders_.back().hold_again(); }
  /// Moves checkpoints beyond the present step aside, except for the `damaged` ones, and opens the files of
  /// run.output; at rank 0. Throws Error.
  void begin(const std::set<std::int64_t>& damaged);

  /// Prints the line of the step that is done, and writes its metrics.
  void report_step();
  /// Writes the record of an evaluation; at rank 0.
  void report_evaluation(const job::Losses& losses);
  /// Prints the line of the last step, if metrics.interval has kept it back.
  void print_last_line();
  /// Leaves what was sent since the last step out of the next step's bytes.
  void pass_over_sent() { sent_before_ = run_.worker.mesh().bytes_sent(); }
  /// Writes a record of the metrics; at rank 0. A failure becomes that of the run.
  template <class Record>
  void write(const Record& record);

  /// Measures and prints the memory outside the plan, after the first step.
  void report_outside();
  /// Measures that memory again, if it has been measured.
  void measure_outside();
  /// Prints what rank 0's steps were bound by, and the peak of memory, if steps were taken.
  void report_peak();

 private:
  void write_resolved_deck() const;
  double seconds_left() const;

  Run& run_;
  const TimeLimits& limits_;
  std::vector<HeldFolder> folders_;  ///< run.output, then the folder of checkpoints
  std::optional<telemetry::MetricsFile> metrics_;
  std::int64_t outside_bytes_ = 0;  ///< bytes outside the plan, measured after the first step and each save
  std::string last_line_;           ///< line of the last step while it is not printed yet; rank 0 alone
  MeanStep mean_step_;
  telemetry::Verdict verdict_;
  Stragglers stragglers_;
  std::vector<runtime::Mesh::Sent> sent_before_;
};

}  // namespace ztrain::train
