#pragma once
// Makes up rows for benchmarks; no file is read.

#include <algorithm>

#include "base/error.hpp"
#include "base/philox.hpp"
#include "data/rows/row_source.hpp"

namespace ztrain::data {

/// Each row is one document of random tokens. Token `place` of row `row` is a function of (seed, row, place),
/// uniform over the vocabulary, on any number of ranks.
class SyntheticRows : public RowSource {
 public:
  /// All arguments are at least 1.
  SyntheticRows(std::uint64_t seed, std::int64_t rows, std::int64_t sequence, std::int64_t vocabulary)
      : seed_(seed), rows_(rows), sequence_(sequence), vocabulary_(vocabulary) {
    REQUIRE(rows > 0 && sequence > 0 && vocabulary > 0,
            "made-up data: {} rows of {} tokens from a vocabulary of {}", rows, sequence, vocabulary);
  }

  std::int64_t sequence() const override { return sequence_; }
  std::int64_t rows() const override { return rows_; }
  void fill(std::int64_t row, const Row& out) const override {
    for (std::int64_t i = 0; i <= sequence_; ++i) {
      const std::int32_t id = token(row, i);
      if (i < sequence_) out.at.tokens[i] = id;
      if (i > 0) out.at.targets[i - 1] = id;
    }
    std::fill_n(out.at.weights, sequence_, 1.0f);
    fill_places(0, sequence_, out);
  }
  RowCounts counts() const override { return {rows_, rows_, rows_ * sequence_, rows_ * sequence_}; }

 private:
  std::int32_t token(std::int64_t row, std::int64_t place) const {
    const PhiloxBlock block =
        philox(seed_, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(place / 4));
    const std::uint64_t bits = block[static_cast<std::size_t>(place % 4)];
    return static_cast<std::int32_t>(bits * static_cast<std::uint64_t>(vocabulary_) >> 32);
  }

  std::uint64_t seed_;
  std::int64_t rows_, sequence_, vocabulary_;
};

}  // namespace ztrain::data
