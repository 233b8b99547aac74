#pragma once
// What a run has done: the part of its state that is not tensors. Saved in every checkpoint.

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "config/validate/validate.hpp"
#include "data/datasets.hpp"
#include "optim/loss_scaler.hpp"

namespace ztrain::job {

/// How matrix products are formed on CPUs, in the words of [device] of the deck; "" where that has no
/// meaning.
struct ProductWays {
  std::string bf16, fp32;
};

/// What a user is to know where a run that multiplied as `before` says goes on as `now` says: a line for each
/// type whose products differ; "" where bits are the same.
std::string note_of(const ProductWays& before, const ProductWays& now);

/// Likewise where the kind of processor (job::processor_of) was another; "" where one is not known.
std::string note_of_processor(const std::string& before, const std::string& now);

struct Progress {
  std::int64_t step = 0;     ///< steps done, skipped ones included
  std::int64_t samples = 0;  ///< the data cursor: sequences consumed over all ranks
  std::int64_t optimizer_steps =
      0;  ///< steps that changed the weights: schedule and bias corrections count these
  optim::LossScalerState loss_scaler;          ///< of fp16 runs
  int skipped_in_a_row = 0;                    ///< of the last steps, those whose gradients were not finite
  bool evaluation_failed = false;              ///< the validation loss of these weights was not finite
  std::optional<double> validation_loss = {};  ///< of these weights, where it is known and finite
  std::int64_t proven_step = -1;  ///< of the newest checkpoint from whose weights a step was taken
  double best_validation_loss = std::numeric_limits<double>::infinity();
  std::int64_t best_step = -1;                       ///< step of that loss; -1: none
  std::int64_t evaluations_without_improvement = 0;  ///< the last ones, in a row
  std::int64_t run_steps =
      0;  ///< length of the run that made this progress, on which its schedule hangs; 0: not known
  ProductWays products;     ///< of the ranks that made this progress
  std::string processor;    ///< of rank 0 of them: its kind; "" where none was recorded
  data::Course course;      ///< empty in checkpoints of versions that could not change data on resume
  config::Earlier earlier;  ///< what was done when batch or data last changed
  std::string reference;    ///< hash of the log-probabilities that pairs of answers are compared with; or ""
};

/// Everything a checkpoint records beside its tensors.
nlohmann::json to_metadata(const Progress& progress, const config::Deck& deck, const data::Identity& data,
                           const std::string& version);

/// Throws Error where checkpoints of this run would have more metadata than can be read back.
void require_readable_metadata(const config::Deck& deck, const data::Identity& data,
                               const data::Course& course = {});

struct Restored {
  Progress progress;
  std::string note;  ///< for the user; "" for none
  config::DeckChanges changes;
  bool other_data = false;  ///< Whether the training data are not those of the checkpoint.
};

/// Returns what identifies a validation loss: the sets, and how many of their rows an evaluation reads. Only
/// losses with the same are compared.
std::string validation_identity(const config::Deck& deck, const data::Identity& data);

/// Throws Error when fields are missing, when a key that may not change on resume did, or when the training
/// data differ (see compare_data) and checkpoint.override does not permit it.
Restored from_metadata(const nlohmann::json& metadata, const config::Deck& deck, const data::Identity& data,
                       const std::string& checkpoint);

/// {"train": ..., "validation": {name: ...}, "tokenizer": ..., "chat_template": ...}
nlohmann::json to_json(const data::Identity& identity);

/// Whether training data may be others than those of the checkpoint.
enum class TrainingData : std::uint8_t { same, any };

/// Compares the data of a checkpoint's metadata with those of now. Throws Error saying which of training
/// data, tokenizer and chat template have changed; training data and chat template may, if `train` is any.
/// Returns what to tell the user of changed validation sets, whose losses cannot be compared then; "" for
/// none.
std::string compare_data(const nlohmann::json& metadata, const data::Identity& now,
                         const std::string& checkpoint, TrainingData train = TrainingData::same);

/// Key of the metadata that has the hash of the blocks of a layout from a file.
inline constexpr const char* blocks_key = "attention_blocks";

/// Throws Error if the deck's layout has other blocks than the checkpoint recorded. hash: the value of
/// blocks_key, or "" if there is none.
void require_same_blocks(const std::string& hash, const config::Deck& deck, const std::string& checkpoint);

/// Returns the deck of a checkpoint with the overrides, and without model.from, because the checkpoint holds
/// the weights and the deck their dims.
config::Deck deck_of(const nlohmann::json& metadata, const std::string& checkpoint,
                     std::vector<std::string> overrides = {});

}  // namespace ztrain::job
