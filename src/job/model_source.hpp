#pragma once
// Finds a model to generate with, or to evaluate: a checkpoint, or the folder of a Hugging Face model. Rank 0
// alone reads its description, because disks of other nodes may hold something else, or only the weights.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/preference_loss.hpp"
#include "checkpoint/checkpoint.hpp"
#include "config/deck.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::job {

struct ModelSource {
  enum class Kind : std::uint8_t { checkpoint, hugging_face };
  std::string folder;
  Kind kind = Kind::checkpoint;
  config::Deck deck;          ///< the run's deck; for a Hugging Face folder only the model's dims are set
  DType dtype = DType::bf16;  ///< dtype to compute in unless the user names another
  std::string origin;         ///< Hugging Face folder that the weights once came from; "": none
  /// Context of that model, as the checkpoint recorded it; 0: not recorded.
  std::int64_t origin_positions = 0;
  std::vector<std::int32_t> ends;  ///< tokens that end a text of the data, as a checkpoint recorded them
  bool lacks_frozen = false;       ///< whether it is a checkpoint that does not hold its frozen weights
  std::string base = {};           ///< folder of these; "": the one that the checkpoint names
  checkpoint::WeightValues values = checkpoint::WeightValues::trained;  ///< that read_weights takes
  std::string attention_blocks = {};  ///< hash of the run's layout of blocks from a file; "": none

  /// Returns whether the model gives answers numbers, and no words likelihoods.
  bool gives_rewards() const { return is_reward_loss(deck.preference.loss_type); }
};

/// Collective. Returns on every rank what rank 0 reads of the model, without its weights. base: as
/// ModelSource::base. Throws AgreedError if the folder is neither a checkpoint nor a model.
ModelSource open_model(const runtime::Session& session, const std::string& folder,
                       const std::string& base = "");

/// Largest number of tokens that the model was made for or trained on.
struct Context {
  std::int64_t positions = 0;  ///< tokens; 0: not known
  std::string from;            ///< source of the number: a key and where it stands
};

/// Returns the context of a model. For a checkpoint: the context of the model that the run started from, as
/// the checkpoint or that model's folder says, but at least data.sequence. Reads files, so only rank 0 calls
/// it. Throws Error for broken files.
Context context_of(const ModelSource& source);

/// Returns the tokens that end a text: of the model's folder, or of the folder that a checkpoint's run
/// started from if it exists, else of the run's data. Reads files, so only rank 0 calls it. Throws Error for
/// broken files.
std::vector<std::int32_t> eos_of(const ModelSource& source);

/// Collective. Fills the "model" shards with checkpoint::load or checkpoint::import_weights, whichever fits
/// the source. Throws AgreedError, also if the frozen weights are not those beside which a checkpoint was
/// trained.
void read_weights(const runtime::Session& session, const ModelSource& source, const checkpoint::Place& place,
                  std::span<const checkpoint::StateShard> shards, const checkpoint::Progress& progress);

}  // namespace ztrain::job
