#pragma once
// From token files to batches. A sample is a window of sequence + 1 tokens; windows start every `sequence`
// tokens, so each token but the first is a target once per epoch. Everything here is a pure function of the
// sample's index: the data cursor of a run is one integer, the number of samples consumed, and does not
// depend on ranks.

#include <cstdint>
#include <memory>
#include <string>

#include "data/token_source.hpp"

namespace ztrain::data {

/// Tokens [begin, end) of a source, cut into windows.
struct TokenRange {
  std::shared_ptr<const TokenSource> source;
  std::int64_t begin = 0, end = 0;
  std::string key;  ///< deck key that gave it, for messages

  /// Whole windows of sequence + 1 tokens at stride sequence.
  std::int64_t windows(std::int64_t sequence) const {
    return end - begin > sequence ? (end - begin - 1) / sequence : 0;
  }
};

/// One micro-batch, each array of micro * sequence elements, row after row. Owned by the caller.
struct MicroBatch {
  std::int32_t* tokens = nullptr;
  std::int32_t* targets = nullptr;    ///< the next token
  float* weights = nullptr;           ///< of each target in the loss: 1, or 0 for padding
  std::int32_t* positions = nullptr;  ///< of the token in its row, from 0
  /// Index, in the flattened micro-batch, of the first token of the token's document. Rows are not packed by
  /// document yet: it is the first token of the row, also where a row of text holds the separator between two
  /// files.
  std::int32_t* document_start = nullptr;
};

/// The training windows in the order of a run: each epoch is a permutation of them, keyed by seed and epoch.
class Sampler {
 public:
  /// vocab_size: ids are checked against it as they are read. Throws Error when the range has no window.
  Sampler(TokenRange range, std::int64_t sequence, std::int64_t seed, std::int64_t vocab_size);

  std::int64_t sequence() const { return sequence_; }
  std::int64_t windows_per_epoch() const { return windows_; }

  /// The window that is sample number `index` >= 0 of the run.
  std::int64_t window(std::int64_t index) const;

  /// Samples [first, first + micro) of the run into out.
  /// Throws Error naming file, position, id and model.vocab_size for an id outside the vocabulary.
  void fill(std::int64_t first, std::int64_t micro, const MicroBatch& out) const;

 private:
  TokenRange range_;
  std::int64_t sequence_, windows_, vocab_size_;
  std::uint64_t key_;
};

/// Validation windows in file order: rows [first, first + micro) into out. Rows past the last window are
/// padding: token 0 with weight 0, so that all ranks run equally often. Errors as Sampler::fill.
void fill_in_order(const TokenRange& range, std::int64_t sequence, std::int64_t vocab_size,
                   std::int64_t first, std::int64_t micro, const MicroBatch& out);

}  // namespace ztrain::data
