#pragma once
// Windows of sequence + 1 tokens. One starts every `sequence` tokens, so each token but the first is a target
// once per epoch. Tokens behind the last whole window are dropped or fill a window in part. A window is one
// document to the model, even if it holds the separator between two files.

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "data/rows/row_source.hpp"
#include "data/tokens/token_source.hpp"

namespace ztrain::data {

/// Whether the tokens behind the last whole window are a window too, which ends with padding of weight 0.
enum class Tail : std::uint8_t { dropped, kept };

class WindowRows : public RowSource {
 public:
  /// Takes the windows of tokens [begin, end) of the source. Throws Error naming the key if there is none.
  /// The source's mask may leave none of their targets to be predicted.
  WindowRows(CheckedTokens tokens, std::int64_t begin, std::int64_t end, std::int64_t sequence,
             Tail tail = Tail::dropped);

  std::int64_t sequence() const override { return sequence_; }
  std::int64_t rows() const override { return counts_.rows; }
  void fill(std::int64_t row, const Row& out) const override;
  void read_ahead(std::int64_t row) const override {
    const std::int64_t begin = begin_ + row * sequence_;
    tokens_.source->read_ahead(begin, std::min(sequence_ + 1, end_ - begin));
  }
  RowCounts counts() const override { return counts_; }

  std::int64_t begin() const { return begin_; }
  std::int64_t end() const { return end_; }
  /// Returns a hash of the source's mask, 0 without one.
  std::uint64_t mask_identity() const { return mask_identity_; }

 private:
  CheckedTokens tokens_;
  std::int64_t begin_, end_, sequence_;
  RowCounts counts_;
  std::uint64_t mask_identity_ = 0;
};

inline WindowRows::WindowRows(CheckedTokens tokens, std::int64_t begin, std::int64_t end,
                              std::int64_t sequence, Tail tail)
    : tokens_(std::move(tokens)), begin_(begin), end_(end), sequence_(sequence) {
  const std::int64_t targets = end - begin - 1, whole = end - begin > sequence ? targets / sequence : 0;
  REQUIRE(tail == Tail::dropped || targets > 0, "{}: {} has one token, and none is to be predicted behind it",
          tokens_.key, files_of(*tokens_.source));
  REQUIRE(tail == Tail::kept || whole > 0,
          "{} has {} tokens, fewer than one window of data.sequence + 1 = {}", tokens_.key, end - begin,
          sequence + 1);
  counts_.tokens = tail == Tail::kept ? targets : whole * sequence;
  counts_.rows = ceil_div(counts_.tokens, sequence);
  MaskStream mask(*tokens_.source, tokens_.key);
  counts_.trained = mask.count(begin + 1, begin + 1 + counts_.tokens);
  mask_identity_ = mask.finish();
}

inline void WindowRows::fill(std::int64_t row, const Row& out) const {
  const std::int64_t begin = begin_ + row * sequence_, n = std::min(sequence_, end_ - 1 - begin);
  // Padding belongs to the window's document, so that a row has one document whatever it holds.
  std::fill(out.at.tokens + n, out.at.tokens + sequence_, 0);
  std::fill(out.at.targets + n, out.at.targets + sequence_, 0);
  std::fill(out.at.weights + n, out.at.weights + sequence_, 0.0f);
  // Reads straight into tokens and targets, without a buffer.
  tokens_.read(begin, n, out.at.tokens);
  tokens_.read(begin + n, 1, out.at.targets + n - 1);
  std::copy(out.at.tokens + 1, out.at.tokens + n, out.at.targets);
  tokens_.read_weights(begin + 1, n, out.at.weights);
  if (out.at.places != nullptr) std::fill_n(out.at.places, sequence_, -1);
  tokens_.tell_places(begin + 1, n, 0, out);
  fill_places(0, sequence_, out);
}

}  // namespace ztrain::data
