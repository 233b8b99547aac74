#pragma once
// The data of a deck: what is trained on and what is validated on, the size of the vocabulary, and the
// identities that tell whether a resumed run sees the same.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/deck.hpp"
#include "data/rows/row_sets.hpp"
#include "data/sampler.hpp"
#include "data/tokens/text_files.hpp"
#include "data/tokens/tokenizer_identity.hpp"

namespace ztrain::data {

/// What of the data decides the numbers of a run.
struct Identity {
  std::uint64_t train = 0;  ///< all files with masks and offsets, how rows are made, and what is held out
  std::uint64_t ends = 0;   ///< of the files to train on, what samples of them can miss
  std::vector<std::pair<std::string, std::uint64_t>> validation;  ///< by the set's name
  std::string tokenizer, chat_template;                           ///< hashes as in Tokenizer
};

struct Datasets {
  std::vector<RowSet> train;  ///< one; with data.weights one for each entry of data.train
  std::vector<RowSet>
      validation;  ///< one for each entry of data.validation, or what is held out of each of train
  std::int64_t vocab_size = 0;        ///< model.vocab_size, or what the files say
  Tokenizer tokenizer;                ///< of all files
  std::vector<std::string> warnings;  ///< a line each
  std::uint64_t ends = 0;             ///< see Identity
  double seconds = 0;                 ///< that opening them took: masks and offsets are read whole
};

/// What is to read the data; the model's own folder has its tokenizer.
Reader reader_of(const config::Deck& deck);

/// Hears what comes next, such as "rows of data.train[1]": masks and offsets are read whole, which may take
/// long.
using Listener = std::function<void(std::string_view)>;
inline void hear_nothing(std::string_view) {}

/// Opens the files of [data]. Without data.validation, data.validation_fraction of each source of training
/// data, at least one row, is validation and not trained on. Throws Error naming the key for missing, empty
/// or broken files, for data too short for data.sequence or without a token to predict, for files that were
/// tokenised differently, for a vocabulary above model.vocab_size, and where model.vocab_size is 0 and the
/// files do not say it.
Datasets open_datasets(const config::Deck& deck, const Listener& next = hear_nothing);

/// The vocab_size that open_datasets would find, without making rows of the tokens. Throws as that does.
std::int64_t vocabulary_of(const config::Deck& deck);

/// The training data in the order of the run.
Sampler make_sampler(const config::Deck& deck, const Datasets& sets);

Identity identity_of(const Datasets& sets);
/// All of it in one number.
std::uint64_t hash_of(const Identity& identity);

/// "packed documents: 120 rows of 512, 700 documents, 58.9k tokens (95.9% of the rows), 20.1k trained; of 712
/// documents 12 truncated to data.sequence"
std::string describe(const RowSet& set);

/// A line per source and per validation set, as (label of at most 10 characters, text).
std::vector<std::pair<std::string, std::string>> describe(const config::Deck& deck, const Datasets& sets);

/// What the files of [data] are that the deck's author may not have meant, a line each. Looks for the files
/// again.
std::vector<std::string> warnings_on(const config::Deck& deck);

}  // namespace ztrain::data
