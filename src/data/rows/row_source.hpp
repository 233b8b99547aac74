#pragma once
// Rows of data.sequence tokens, which are the samples of a run. A RowSource takes their tokens from windows
// of a stream (window_rows.hpp), or from whole documents (document_rows.hpp).

#include <cstdint>
#include <memory>
#include <string>

#include "data/tokens/token_source.hpp"

namespace ztrain::data {

/// One micro-batch; each array has micro * sequence elements, row after row. The caller owns them.
struct MicroBatch {
  std::int32_t* tokens = nullptr;
  std::int32_t* targets = nullptr;  ///< the next token of the same document; 0 if there is none
  float* weights = nullptr;  ///< weight of each target in the loss: 1, or 0 if it is not to be predicted
  std::int32_t* positions = nullptr;  ///< position of the token in its document, from 0
  /// Index, in the flattened micro-batch, of the first token of the token's document.
  std::int32_t* document_start = nullptr;
  /// Slot of the token's sequence in the flattened micro-batch, never falling; null: nobody asks for it. The
  /// slots of a row begin at its number times sequence_slots().
  std::int32_t* sequences = nullptr;
  /// Terms of the log-probability of the token's sequence under a reference model; null likewise.
  double* reference = nullptr;
  /// Place of the target in a file of likelihoods (data/teacher.hpp), or -1 if it is not to be predicted;
  /// null likewise.
  std::int64_t* places = nullptr;
};

/// One row of a micro-batch: pointers to its first elements.
struct Row {
  MicroBatch at;
  std::int64_t index = 0;  ///< index of its first token in the flattened micro-batch
};
Row row_of(const MicroBatch& batch, std::int64_t row, std::int64_t sequence);

/// Counts of rows and of what they hold.
struct RowCounts {
  std::int64_t rows = 0;
  std::int64_t documents = 0;  ///< 0: windows, which do not know documents
  std::int64_t tokens = 0;     ///< tokens without padding
  std::int64_t trained = 0;    ///< targets of weight 1
};

class RowSource {
 public:
  virtual ~RowSource() = default;

  virtual std::int64_t sequence() const = 0;

  /// Returns the number of rows, at least 1.
  virtual std::int64_t rows() const = 0;

  /// Writes sequence() elements of every array. A pure function of row, 0 <= row < rows(). For an id outside
  /// the vocabulary, throws Error naming key, file, position, id and model.vocab_size.
  virtual void fill(std::int64_t row, const Row& out) const = 0;

  /// Asks the system to read what fill(row) will soon read; returns at once. A hint.
  virtual void read_ahead(std::int64_t) const {}

  virtual RowCounts counts() const = 0;
};

/// Fills a row without a document: token 0 with weight 0.
void fill_padding(std::int64_t sequence, const Row& out);

/// Fills positions and starts of tokens [begin, begin + count) of a row as one document.
void fill_places(std::int64_t begin, std::int64_t count, const Row& out);

/// Fills rows [first, first + micro) of a source in their order. Rows past the last are padding, so that all
/// ranks run equally often.
void fill_in_order(const RowSource& source, std::int64_t first, std::int64_t micro, const MicroBatch& out);

/// Reads rows in their order, for at most `seconds`, and returns how many. Throws what RowSource::fill
/// throws, such as for an id outside the vocabulary that would end a run later.
std::int64_t read_rows(const RowSource& rows, double seconds);

/// Tokens whose ids are checked as they are read.
struct CheckedTokens {
  std::shared_ptr<const TokenSource> source;
  std::string key;  ///< key of the deck, for messages
  std::int64_t vocab_size = 0;
  std::int64_t first_place = 0;  ///< of the source's first token in a file of likelihoods

  /// Reads tokens. For an id outside the vocabulary, throws Error naming key, file, position, id and
  /// model.vocab_size.
  void read(std::int64_t begin, std::int64_t count, std::int32_t* out) const;

  /// Reads the weights of tokens [begin, begin + count) as targets.
  void read_weights(std::int64_t begin, std::int64_t count, float* out) const;

  /// Writes the places of tokens [begin, begin + count) as the targets of a row from `at` on, whose weights
  /// are written, if the row has room for them.
  void tell_places(std::int64_t begin, std::int64_t count, std::int64_t at, const Row& out) const;
};

}  // namespace ztrain::data
