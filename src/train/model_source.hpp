#pragma once
// A model to generate with: a checkpoint of ztrain's, or the folder of a Hugging Face model.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "config/deck.hpp"

namespace ztrain::train {

struct ModelSource {
  enum class Kind : std::uint8_t { checkpoint, hugging_face };
  std::string folder;
  Kind kind = Kind::checkpoint;
  config::Deck deck;               ///< of the run; of a Hugging Face folder, the model's dims alone are meant
  DType dtype = DType::bf16;       ///< to compute in, where nobody says another
  std::int64_t max_positions = 0;  ///< tokens that the model was made for or trained on; 0: not known
  std::vector<std::int32_t> eos;   ///< tokens that end a text
};

/// Reads what describes the model, not its weights. Throws Error for a folder that is neither.
ModelSource open_model(const std::string& folder);

/// Fills the "model" shards; as checkpoint::load and checkpoint::import_weights, whichever it is.
void read_weights(const ModelSource& source, const checkpoint::Place& place,
                  std::span<const checkpoint::StateShard> shards);

}  // namespace ztrain::train
