#pragma once
// A model to generate with: a checkpoint of ztrain's, or the folder of a Hugging Face model. Rank 0 alone
// looks at what describes it: on the disks of other nodes there may be something else, or only the weights.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "config/deck.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::generate {

struct ModelSource {
  enum class Kind : std::uint8_t { checkpoint, hugging_face };
  std::string folder;
  Kind kind = Kind::checkpoint;
  config::Deck deck;          ///< of the run; of a Hugging Face folder, the model's dims alone are meant
  DType dtype = DType::bf16;  ///< to compute in, where nobody says another
  std::string origin;         ///< the Hugging Face folder that the weights once came from; "": none
  std::int64_t origin_positions = 0;  ///< what a checkpoint recorded of that model's context; 0: nothing
  std::vector<std::int32_t> ends;     ///< tokens that end a text of the data, as a checkpoint recorded them
};

/// Collective: what rank 0 reads of the model, not its weights, on every rank. Throws AgreedError for a
/// folder that is neither.
ModelSource open_model(const runtime::Session& session, const std::string& folder);

/// Tokens that the model was made for or trained on.
struct Context {
  std::int64_t positions = 0;  ///< 0: not known
  std::string from;            ///< who says so: a key and where it is
};

/// Of a checkpoint: what the model that the run started from was made for, as the checkpoint or else that
/// model's folder says, but no less than data.sequence. Reads files: for rank 0. Throws Error for broken
/// ones.
Context context_of(const ModelSource& source);

/// Tokens that end a text, of the folder or of the one that a checkpoint's run started from, while it is
/// there; else those of the data of the run. Reads files: for rank 0. Throws Error for broken ones.
std::vector<std::int32_t> eos_of(const ModelSource& source);

/// Fills the "model" shards; as checkpoint::load and checkpoint::import_weights, whichever it is.
void read_weights(const ModelSource& source, const checkpoint::Place& place,
                  std::span<const checkpoint::StateShard> shards, const checkpoint::Progress& progress);

}  // namespace ztrain::generate
