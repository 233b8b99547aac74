#pragma once
// Opens the data of a deck: training and validation sets, the size of the vocabulary, and the identities by
// which a resumed run knows that it sees the same data.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/deck.hpp"
#include "data/course.hpp"
#include "data/rows/row_sets.hpp"
#include "data/sampler.hpp"
#include "data/teacher.hpp"
#include "data/tokens/text_files.hpp"
#include "data/tokens/token_source.hpp"

namespace ztrain::data {

/// Identity of the data that decide the numbers of a run.
struct Identity {
  /// Hash of all files with masks and offsets, of how rows are made, and of what is held out.
  std::uint64_t train = 0;
  std::uint64_t ends = 0;  ///< hash of the ends of training files, which samples of them can miss
  std::vector<std::pair<std::string, std::uint64_t>> validation;  ///< hash by the set's name
  std::vector<std::int64_t> validation_rows{};                    ///< number of rows of each of these sets
  std::string tokenizer, chat_template;                           ///< hashes as in Tokenizer
};

struct Datasets {
  std::vector<RowSet> train;  ///< one set; with data.weights one for each entry of data.train
  /// One for each entry of data.validation, or what is held out of each of train.
  std::vector<RowSet> validation;
  std::int64_t vocab_size = 0;               ///< model.vocab_size, or the vocabulary that the files name
  Tokenizer tokenizer;                       ///< tokenizer of all files
  std::vector<std::string> warnings;         ///< one line each
  std::uint64_t ends = 0;                    ///< see Identity
  std::shared_ptr<const Teacher> teacher{};  ///< null unless the deck has one
  /// Files to evaluate, by the places of their tokens; none of training data.
  std::vector<LikelihoodSource> places{};
  double seconds = 0;  ///< time to open them: masks and offsets are read whole
};

/// Returns the reader of the data; the model's own folder has its tokenizer.
Reader reader_of(const config::Deck& deck);

/// Called with what comes next, such as "rows of data.train[1]". Masks and offsets are read whole, which may
/// take long.
using Listener = std::function<void(std::string_view)>;
inline void hear_nothing(std::string_view) {}

/// Opens the files of [data]. Without data.validation, data.validation_fraction of each source of training
/// data, at least one row, becomes validation data and is not trained on. Throws Error naming the key for
/// missing, empty or broken files; for data too short for data.sequence or without a token to predict; for
/// files that were tokenised differently; for a vocabulary above model.vocab_size; and if model.vocab_size is
/// 0 and the files do not give it.
///
/// If `parts` is not empty, it has the files of each source by the parts in which they joined it. Each part
/// has rows of its own, and only of the first part something is held out. Throws Error if a file is missing.
Datasets open_datasets(const config::Deck& deck, const Listener& next = hear_nothing,
                       const FileLists& parts = {});

/// Opens files to evaluate: a set for each entry, and no more than `tokens` tokens of each. deck.data says
/// how rows are made. Throws Error as open_datasets does, naming `key`.
Datasets open_to_evaluate(const config::Deck& deck, const std::vector<std::string>& files,
                          const std::string& key, std::int64_t tokens, const Listener& next = hear_nothing);

/// Returns the vocab_size that open_datasets would find, without making rows. Throws the same errors.
std::int64_t vocabulary_of(const config::Deck& deck);

/// Returns the training data in the order of the run; without a course that of a new run.
Sampler make_sampler(const config::Deck& deck, const Datasets& sets, const Course& course = {});

Identity identity_of(const Datasets& sets);
/// Returns one hash of the whole identity.
std::uint64_t hash_of(const Identity& identity);

/// Returns text such as "packed documents: 120 rows of 512, 700 documents, 58.9k tokens (95.9% of the rows),
/// 20.1k trained; of 712 documents 12 truncated to data.sequence".
std::string describe(const RowSet& set);

/// Returns a line per source and per validation set, as (label of at most 10 characters, text).
std::vector<std::pair<std::string, std::string>> describe(const config::Deck& deck, const Datasets& sets);

/// Returns a line for each property of the files of [data] that the deck's author may not have meant. Looks
/// for the files again.
std::vector<std::string> warnings_on(const config::Deck& deck);

}  // namespace ztrain::data
