#include "data/rows/synthetic_rows.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/philox.hpp"

namespace ztrain::data {

SyntheticRows::SyntheticRows(std::uint64_t seed, std::int64_t rows, std::int64_t sequence,
                             std::int64_t vocabulary)
    : seed_(seed), rows_(rows), sequence_(sequence), vocabulary_(vocabulary) {
  REQUIRE(rows > 0 && sequence > 0 && vocabulary > 0,
          "made-up data: {} rows of {} tokens from a vocabulary of {}", rows, sequence, vocabulary);
}

std::int32_t SyntheticRows::token(std::int64_t row, std::int64_t place) const {
  const PhiloxBlock block =
      philox(seed_, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(place / 4));
  const std::uint64_t bits = block[static_cast<std::size_t>(place % 4)];
  return static_cast<std::int32_t>(bits * static_cast<std::uint64_t>(vocabulary_) >> 32);
}

void SyntheticRows::fill(std::int64_t row, const Row& out) const {
  for (std::int64_t i = 0; i <= sequence_; ++i) {
    const std::int32_t id = token(row, i);
    if (i < sequence_) out.at.tokens[i] = id;
    if (i > 0) out.at.targets[i - 1] = id;
  }
  std::fill_n(out.at.weights, sequence_, 1.0f);
  fill_places(0, sequence_, out);
}

RowCounts SyntheticRows::counts() const {
  return {rows_, rows_, rows_ * sequence_, rows_ * sequence_};
}

}  // namespace ztrain::data
