#pragma once
// Writes the run's numbers, one JSON object per line, to <run.output>/metrics.jsonl. Lines are appended
// whole, so a killed run leaves at most its last line unfinished. A resumed run leaves no step twice.

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ztrain::telemetry {

/// Seconds of one step by phase. Phases may overlap, so they need not add up to the total. A phase that was
/// not timed is left out of the record.
struct PhaseSeconds {
  double data = 0;
  std::optional<double> forward, backward, optimizer, gather, reduce;
  std::optional<double> exposed_communication;  ///< time that computing waited for communication
  /// Seconds of copies between the host's memory and CPU ranks' memory, and of waiting for NVMe. Empty
  /// without [offload].
  std::optional<double> fetch, evict, exposed_drives;
  std::optional<double> exposed_messages;  ///< part of exposed_communication: between stages of a pipeline
  /// Part of `save`: waiting for a checkpoint that was still being written when the next was due.
  std::optional<double> save_wait;
  double save = 0, total = 0;
};

/// Losses of experts, which come on top of the loss, and their load in a step.
struct ExpertsRecord {
  double balance_loss = 0, z_loss = 0;  ///< per token
  double load_max = 0;  ///< tokens of the expert with most, over the mean of its layer's; the worst layer's
  double idle = 0;      ///< experts without a token, over all layers
  /// Whether the step was taken again, with room for all rows; nothing if each step has such room.
  std::optional<bool> rerun{};
};

/// Means over pairs of answers, by TRL's names.
struct PairsRecord {
  double chosen_reward = 0, rejected_reward = 0, margin = 0, accuracy = 0;
  std::optional<double> chosen_logp{}, rejected_logp{};  ///< nothing for a reward model
  std::optional<double> pairs{};                         ///< pairs, or answers with labels, of the step
  std::optional<double> kl{};                            ///< of kto
};

/// Means over tokens of a loss against a teacher.
struct DistillationRecord {
  double entropy = 0, divergence = 0;
};

/// Numbers of one step. NaN and infinities are written as null.
struct StepRecord {
  std::int64_t step = 0;
  double loss = 0, grad_norm = 0, lr = 0;
  double epoch = 0;         ///< passes over the training data, this step included
  std::int64_t tokens = 0;  ///< tokens since the start of training, this step included
  double tokens_per_s = 0;
  double mfu = 0;  ///< NaN if the peak is not known
  /// Units of rank 0 whose step ahead of the norm was taken back; nothing without offload.optimizer_ahead.
  std::optional<std::int64_t> units_rolled_back{};
  PhaseSeconds seconds;
  /// bytes that this rank sent in this step, by axes ("shard")
  std::vector<std::pair<std::string, std::int64_t>> bytes_sent;
  std::int64_t peak_bytes = 0;                       ///< resident bytes, largest so far
  std::optional<ExpertsRecord> experts{};            ///< nothing in models without experts
  std::optional<PairsRecord> pairs{};                ///< nothing unless the loss is on pairs of answers
  std::optional<DistillationRecord> distillation{};  ///< nothing without a teacher
};

struct EvaluationRecord {
  std::int64_t step = 0;
  double validation_loss = 0;                          ///< loss of all sets together
  std::vector<std::pair<std::string, double>> sets{};  ///< loss of each set, written if there are several
  std::optional<double> balance_loss{}, z_loss{};      ///< losses of experts, per token
  double epoch = 0;
  std::int64_t tokens = 0;
  /// The last evaluations in a row that were no improvement, this one included; nothing if none is counted.
  std::optional<std::int64_t> without_improvement{};
  bool ends_run = false;  ///< Whether these were as many as the run has patience for.
  std::optional<PairsRecord> pairs{};
};

/// Silent corruption that was found after step `from`; the run went back to `step`.
struct CorruptionRecord {
  std::int64_t step = 0, from = 0;
  std::string found;
};

/// Names in run.output. The second exists while a resumed run drops lines.
constexpr const char *metrics_name = "metrics.jsonl", *unfinished_metrics_name = "metrics.jsonl.tmp";

class MetricsFile {
 public:
  /// Opens the file in `output`, the existing folder run.output. resumed_at is the step that the run goes on
  /// from: lines of later steps and an unfinished last line are dropped. Without it a new file is begun, and
  /// an earlier run's file is kept as previous(). `hold` is called before a removed file is made again, and
  /// throws if nothing may be written there, as after a disk was unmounted. Throws Error naming run.output if
  /// the folder cannot be written.
  MetricsFile(
      const std::string& output, std::optional<std::int64_t> resumed_at, std::function<void()> hold = [] {});
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  /// Appends a line. If the file was removed since the last line, makes it again with all its lines; if
  /// another file has its name, goes on in that one. Returns what to tell the user of this, or "". The folder
  /// must exist. Throws Error naming run.output if the line cannot be written.
  std::string write(const StepRecord& record);
  std::string write(const EvaluationRecord& record);
  /// Drops the lines of later steps and writes this one.
  std::string write(const CorruptionRecord& record);

  const std::string& path() const { return path_; }
  /// Returns the name that an earlier run's lines have now (metrics.previous.jsonl, metrics.previous-2.jsonl,
  /// ...), or "" if there were none.
  const std::string& previous() const { return previous_; }

 private:
  void set_aside(const std::string& output);
  void keep_until(std::int64_t step);
  std::string append(nlohmann::ordered_json line);
  void make_again(bool removed);

  std::string path_, previous_;
  std::function<void()> hold_;
  int file_ = -1;
};

}  // namespace ztrain::telemetry
