#pragma once
// Texts that a run prints at its start and at each step.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/deck.hpp"
#include "data/datasets.hpp"
#include "engine/executor.hpp"
#include "job/progress.hpp"
#include "job/worker.hpp"
#include "telemetry/metrics_file.hpp"
#include "telemetry/step_line.hpp"

namespace ztrain::train {

struct Run;

/// Facts that every line needs and that do not change.
struct RunFacts {
  std::int64_t steps = 0;
  std::int64_t tokens_per_step = 0;
  double flops_per_token = 0;
  double peak_flops = 0;     ///< FLOP/s of one rank; 0: unknown
  double machine_bytes = 0;  ///< bytes of memory of the node or GPU, for percentages; 0: unknown
  int ranks = 1;
  bool pipeline = false;         ///< whether the model has several stages
  bool behind_training = false;  ///< whether checkpoints before the end are written in the background
  bool experts = false;          ///< whether the model reports losses and loads of experts
  std::string loss_type;         ///< preference.loss_type
  /// Number of units that are stepped ahead of the norm; none without offload.optimizer_ahead.
  std::optional<std::int64_t> units_ahead{};
  bool offload = false;  ///< whether any tensor is kept in another tier than the device's
};

/// Clock readings of one step, in seconds.
struct StepClock {
  double data = 0, total = 0, save = 0;
  double save_wait = 0;  ///< part of `save`: waiting for a checkpoint that was still being written
};

/// Returns lines about the data, as (label, text). With `looks`, compares the data with the files of the deck
/// and the model.
std::vector<std::pair<std::string, std::string>> lines_on_data(const config::Deck& deck,
                                                               const data::Datasets& data, bool looks);

/// Collective. Returns lines on where the ranks are, and on the networks between several nodes.
std::vector<engine::Note> notes_on_nodes(const runtime::Session& session, bool nccl);

/// Returns the text that a run begins with; `nodes` is from notes_on_nodes(). Rank 0 alone compares the
/// data's tokenizer with the model's, because its text is printed.
std::string banner(const runtime::Session& session, const config::Deck& deck, const data::Datasets& data,
                   job::Worker& worker, const RunFacts& facts, const std::string& version,
                   const std::vector<engine::Note>& nodes);

/// Returns the message of a run whose checkpoint is at its end. It names the key that sets the end.
std::string nothing_to_do(const config::Deck& deck, const job::Progress& progress, std::int64_t steps);

/// Returns the means over pairs as a record has them.
telemetry::PairsRecord record_of(const PreferenceSums& means, const std::string& loss_type);

telemetry::StepRecord step_record(const Run& run, const engine::Timings& timings,
                                  const std::vector<runtime::Mesh::Sent>& sent);

telemetry::StepLine step_line(const telemetry::StepRecord& record, const RunFacts& facts,
                              double seconds_left);

}  // namespace ztrain::train
