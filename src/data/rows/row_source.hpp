#pragma once
// Rows of data.sequence tokens: what a sample of a run is. Where the tokens of a row come from is a
// RowSource's own business: windows of a stream of tokens (window_rows.hpp), or whole documents
// (document_rows.hpp).

#include <cstdint>
#include <memory>
#include <string>

#include "data/tokens/token_source.hpp"

namespace ztrain::data {

/// One micro-batch, each array of micro * sequence elements, row after row. Owned by the caller.
struct MicroBatch {
  std::int32_t* tokens = nullptr;
  std::int32_t* targets = nullptr;    ///< the next token of the same document; 0 where there is none
  float* weights = nullptr;           ///< of each target in the loss: 1, or 0 for what is not to be predicted
  std::int32_t* positions = nullptr;  ///< of the token in its document, from 0
  /// Index, in the flattened micro-batch, of the first token of the token's document.
  std::int32_t* document_start = nullptr;
};

/// One row of a micro-batch: pointers to its first elements.
struct Row {
  MicroBatch at;
  std::int64_t index = 0;  ///< of its first token in the flattened micro-batch
};
Row row_of(const MicroBatch& batch, std::int64_t row, std::int64_t sequence);

/// What rows hold.
struct RowCounts {
  std::int64_t rows = 0;
  std::int64_t documents = 0;  ///< 0: windows, which know no documents
  std::int64_t tokens = 0;     ///< without padding
  std::int64_t trained = 0;    ///< targets of weight 1
};

class RowSource {
 public:
  virtual ~RowSource() = default;

  virtual std::int64_t sequence() const = 0;

  /// At least 1.
  virtual std::int64_t rows() const = 0;

  /// Writes sequence() elements of every array. A pure function of row, 0 <= row < rows(). Throws Error
  /// naming key, file, position, id and model.vocab_size for an id outside the vocabulary.
  virtual void fill(std::int64_t row, const Row& out) const = 0;

  /// Asks the system for what fill(row) reads, which is done soon; returns at once. A hint.
  virtual void read_ahead(std::int64_t) const {}

  virtual RowCounts counts() const = 0;
};

/// A row without a document: token 0 with weight 0.
void fill_padding(std::int64_t sequence, const Row& out);

/// Tokens [begin, begin + count) of a row as one document: its positions and starts.
void fill_places(std::int64_t begin, std::int64_t count, const Row& out);

/// Rows [first, first + micro) of a source in their order. Rows past the last are padding, so that all ranks
/// run equally often.
void fill_in_order(const RowSource& source, std::int64_t first, std::int64_t micro, const MicroBatch& out);

/// Reads rows in their order, for at most `seconds`, and gives how many. Throws what RowSource::fill throws:
/// an id outside the vocabulary that would end a run when it gets there.
std::int64_t read_rows(const RowSource& rows, double seconds);

/// Tokens whose ids are checked as they are read.
struct CheckedTokens {
  std::shared_ptr<const TokenSource> source;
  std::string key;  ///< of the deck, for messages
  std::int64_t vocab_size = 0;

  /// Throws Error naming key, file, position, id and model.vocab_size for an id outside the vocabulary.
  void read(std::int64_t begin, std::int64_t count, std::int32_t* out) const;

  /// The weights of tokens [begin, begin + count) as targets.
  void read_weights(std::int64_t begin, std::int64_t count, float* out) const;
};

}  // namespace ztrain::data
