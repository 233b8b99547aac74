#pragma once
// The run's numbers, one JSON object per line in <run.output>/metrics.jsonl. Lines are appended whole, so a
// run that is killed leaves at most its last line unfinished; a resumed run leaves no step twice.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ztrain::telemetry {

/// Seconds of one step by phase. Phases may overlap, so they need not add up to total. What was not timed is
/// left out of the record.
struct PhaseSeconds {
  double data = 0;
  std::optional<double> forward, backward, optimizer, gather, reduce;
  std::optional<double> exposed_communication;  ///< time in which computing waited for communication
  /// Of [offload]: copies of the host between its memory and CPU ranks', and waiting for NVMe. Where nothing
  /// is sent away there are none.
  std::optional<double> fetch, evict, exposed_drives;
  std::optional<double> exposed_messages;  ///< of exposed_communication: between stages of a pipeline
  /// Of save: for a checkpoint that was still being written behind training when the next was due.
  std::optional<double> save_wait;
  double save = 0, total = 0;
};

/// NaN and infinities are written as null.
struct StepRecord {
  std::int64_t step = 0;
  double loss = 0, grad_norm = 0, lr = 0;
  std::int64_t tokens = 0;  ///< consumed since the start of training, this step included
  double tokens_per_s = 0;
  double mfu = 0;  ///< NaN where the peak is not known
  PhaseSeconds seconds;
  std::vector<std::pair<std::string, std::int64_t>> bytes_sent;  ///< by axes ("shard"), this rank, this step
  std::int64_t peak_bytes = 0;                                   ///< resident, so far
};

struct EvaluationRecord {
  std::int64_t step = 0;
  double validation_loss = 0;                          ///< of all sets together
  std::vector<std::pair<std::string, double>> sets{};  ///< the loss of each, written where there are several
};

/// Silent corruption, found behind step `from`: the run went back to `step`.
struct CorruptionRecord {
  std::int64_t step = 0, from = 0;
  std::string found;
};

/// In run.output; the second while a resumed run drops lines.
constexpr const char *metrics_name = "metrics.jsonl", *unfinished_metrics_name = "metrics.jsonl.tmp";

class MetricsFile {
 public:
  /// output: the folder run.output, which must exist. resumed_at: the step the run goes on from; lines of
  /// later steps and an unfinished last line are dropped. Without it a new file is begun, and an earlier
  /// run's is kept as previous(). hold: called before a file that was removed is made again, and throws where
  /// nothing may be: a disk may have been unmounted since the folder was looked at last. Throws Error naming
  /// run.output when the folder cannot be written.
  MetricsFile(
      const std::string& output, std::optional<std::int64_t> resumed_at, std::function<void()> hold = [] {});
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  /// Where the file was removed since the last line it is made again with all its lines; where another stands
  /// in its place the lines go on there. What to tell the user of that; else "". The folder must be there.
  /// Throw Error naming run.output when the line cannot be written.
  std::string write(const StepRecord& record);
  std::string write(const EvaluationRecord& record);
  /// In the place of the lines of later steps, which are dropped.
  std::string write(const CorruptionRecord& record);

  const std::string& path() const { return path_; }
  /// Where an earlier run's lines are now: metrics.previous.jsonl, metrics.previous-2.jsonl, ...; "" where
  /// there were none.
  const std::string& previous() const { return previous_; }

 private:
  void set_aside(const std::string& output);
  void keep_until(std::int64_t step);
  std::string append(const std::string& line);
  void make_again(bool removed);

  std::string path_, previous_;
  std::function<void()> hold_;
  int file_ = -1;
};

}  // namespace ztrain::telemetry
