#pragma once
// The data of a deck: training and validation ranges, and the size of the vocabulary.

#include <cstdint>

#include "config/deck.hpp"
#include "data/sampler.hpp"

namespace ztrain::data {

struct Datasets {
  TokenRange train;
  TokenRange validation;        ///< source is null when there is none
  std::int64_t vocab_size = 0;  ///< model.vocab_size, or what the files say
  std::uint64_t identity = 0;   ///< of all files, and of where the held-out part begins
};

/// Opens the files of [data]. Without data.validation the last data.validation_fraction of the training
/// tokens, at least one window, is validation and not trained on. Throws Error naming the key for missing,
/// empty or broken files, for data too short for data.sequence, and where model.vocab_size is 0 and the files
/// do not say it.
Datasets open_datasets(const config::Deck& deck);

}  // namespace ztrain::data
