#pragma once
// Rows that are made up, for benchmarks: no file is read.

#include "data/rows/row_source.hpp"

namespace ztrain::data {

/// Each row is one document of random tokens: token `place` of row `row` is a function of (seed, row, place),
/// uniform over the vocabulary, whatever the ranks.
class SyntheticRows : public RowSource {
 public:
  /// All at least 1.
  SyntheticRows(std::uint64_t seed, std::int64_t rows, std::int64_t sequence, std::int64_t vocabulary);

  std::int64_t sequence() const override { return sequence_; }
  std::int64_t rows() const override { return rows_; }
  void fill(std::int64_t row, const Row& out) const override;
  RowCounts counts() const override;

 private:
  std::int32_t token(std::int64_t row, std::int64_t place) const;

  std::uint64_t seed_;
  std::int64_t rows_, sequence_, vocabulary_;
};

}  // namespace ztrain::data
