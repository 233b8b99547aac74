// Made-up rows for benchmarks.
#include "data/rows/synthetic_rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace ztrain::data::synthetic_rows_test {
namespace {

constexpr std::int64_t sequence = 37, vocabulary = 11;

struct Filled {
  std::vector<std::int32_t> tokens, targets, positions, document_start;
  std::vector<float> weights;
};

Filled fill(const RowSource& rows, std::int64_t first, std::int64_t micro) {
  const auto n = static_cast<std::size_t>(micro * rows.sequence());
  Filled f{std::vector<std::int32_t>(n, -7), std::vector<std::int32_t>(n, -7),
           std::vector<std::int32_t>(n, -7), std::vector<std::int32_t>(n, -7), std::vector<float>(n, -7)};
  fill_in_order(
      rows, first, micro,
      {f.tokens.data(), f.targets.data(), f.weights.data(), f.positions.data(), f.document_start.data()});
  return f;
}

TEST(SyntheticRows, AreDocumentsOfTheWholeSequence) {
  const SyntheticRows rows(5, 100, sequence, vocabulary);
  EXPECT_EQ(rows.counts().trained, 100 * sequence);
  const Filled f = fill(rows, 4, 2);
  for (std::size_t i = 0; i < f.tokens.size(); ++i) {
    const auto place = static_cast<std::int32_t>(i % sequence), begin = static_cast<std::int32_t>(i) - place;
    EXPECT_EQ(f.positions[i], place);
    EXPECT_EQ(f.document_start[i], begin);
    EXPECT_EQ(f.weights[i], 1);
    EXPECT_TRUE(f.tokens[i] >= 0 && f.tokens[i] < vocabulary && f.targets[i] >= 0 &&
                f.targets[i] < vocabulary);
    if (place + 1 < sequence) {
      EXPECT_EQ(f.targets[i], f.tokens[i + 1]);
    }
  }
}

TEST(SyntheticRows, DependOnSeedAndRowAlone) {
  const SyntheticRows rows(5, 100, sequence, vocabulary), other(6, 100, sequence, vocabulary);
  const Filled two = fill(rows, 4, 2), second = fill(rows, 5, 1);
  EXPECT_TRUE(std::equal(second.tokens.begin(), second.tokens.end(), two.tokens.begin() + sequence));
  EXPECT_FALSE(std::equal(second.tokens.begin(), second.tokens.end(), two.tokens.begin()));
  EXPECT_NE(fill(other, 5, 1).tokens, second.tokens);
}

TEST(SyntheticRows, UseTheWholeVocabulary) {
  const Filled f = fill(SyntheticRows(1, 100, sequence, vocabulary), 0, 100);
  for (std::int32_t id = 0; id < vocabulary; ++id) {
    const auto found = std::count(f.tokens.begin(), f.tokens.end(), id);
    // 336 expected; the standard deviation of each is 17.5.
    EXPECT_NEAR(static_cast<double>(found), 3700.0 / vocabulary, 100) << id;
  }
}

}  // namespace
}  // namespace ztrain::data::synthetic_rows_test
