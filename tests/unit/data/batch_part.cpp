// The part of a micro-batch that a rank of mesh.context has.

#include "data/rows/batch_part.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace ztrain::data::batch_part_test {
namespace {

struct Arrays {
  explicit Arrays(std::size_t count)
      : tokens(count, -1), targets(count, -1), positions(count, -1), starts(count, -1), weights(count, -1) {}
  MicroBatch batch() {
    return {tokens.data(), targets.data(), weights.data(), positions.data(), starts.data()};
  }
  std::vector<std::int32_t> tokens, targets, positions, starts;
  std::vector<float> weights;
};

/// 7 tokens: documents of 3 and 4.
void read(const MicroBatch& out) {
  for (std::int32_t t = 0; t < 7; ++t) {
    out.tokens[t] = 100 + t;
    out.targets[t] = 101 + t;
    out.weights[t] = 1;
  }
  fill_places(0, 3, {out, 0});
  fill_places(3, 4, {out, 0});
}

TEST(BatchPart, PositionsAndStartsTravelWithTheTokens) {
  Arrays part(2);
  BatchPart(7, {4, 1}, 2).fill(part.batch(), read);
  EXPECT_EQ(part.tokens, (std::vector<std::int32_t>{104, 105}));
  EXPECT_EQ(part.targets, (std::vector<std::int32_t>{105, 106}));
  EXPECT_EQ(part.positions, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(part.starts, (std::vector<std::int32_t>{3, 3}));
  EXPECT_EQ(part.weights, (std::vector<float>{1, 1}));
}

TEST(BatchPart, WhatIsMissingIsADocumentWithoutWeight) {
  Arrays last(2);
  BatchPart(7, {4, 1}, 3).fill(last.batch(), read);
  EXPECT_EQ(last.tokens, (std::vector<std::int32_t>{106, 100})) << "what the micro-batch begins with";
  EXPECT_EQ(last.targets, (std::vector<std::int32_t>{107, 0}));
  EXPECT_EQ(last.positions, (std::vector<std::int32_t>{3, 0}));
  EXPECT_EQ(last.starts, (std::vector<std::int32_t>{3, 7}));
  EXPECT_EQ(last.weights, (std::vector<float>{1, 0}));
  Arrays padding(3);
  BatchPart(7, {5, 1}, 4)
      .fill({padding.tokens.data(), padding.targets.data(), padding.weights.data(), padding.positions.data(),
             padding.starts.data()},
            read);
  EXPECT_EQ(padding.starts, (std::vector<std::int32_t>{7, 7, -1}));
  EXPECT_EQ(padding.positions, (std::vector<std::int32_t>{0, 0, -1}));
  EXPECT_EQ(padding.tokens, (std::vector<std::int32_t>{100, 100, -1}))
      << "each as the first token, which attends to itself";
}

/// 7 tokens and 1 of padding in 4 chunks.
TEST(BatchPart, TakesAChunkFromEitherEndOfWhatGoesRound) {
  Arrays outer(4), inner(4);
  BatchPart(7, {2, 2}, 0).fill(outer.batch(), read);
  EXPECT_EQ(outer.tokens, (std::vector<std::int32_t>{100, 101, 106, 100}));
  EXPECT_EQ(outer.targets, (std::vector<std::int32_t>{101, 102, 107, 0}));
  EXPECT_EQ(outer.positions, (std::vector<std::int32_t>{0, 1, 3, 0}));
  EXPECT_EQ(outer.starts, (std::vector<std::int32_t>{0, 0, 3, 7}));
  EXPECT_EQ(outer.weights, (std::vector<float>{1, 1, 1, 0}));
  BatchPart(7, {2, 2}, 1).fill(inner.batch(), read);
  EXPECT_EQ(inner.tokens, (std::vector<std::int32_t>{102, 103, 104, 105}));
  EXPECT_EQ(inner.starts, (std::vector<std::int32_t>{0, 3, 3, 3}));
}

TEST(BatchPart, OneOfOneIsReadInPlace) {
  Arrays whole(7);
  const std::int32_t* read_into = nullptr;
  BatchPart(7, {1, 1}, 0).fill(whole.batch(), [&](const MicroBatch& out) { read_into = out.tokens; });
  EXPECT_EQ(read_into, whole.tokens.data());
  Arrays padded(8);
  BatchPart(7, {1, 1, 4}, 0).fill(padded.batch(), read);
  EXPECT_EQ(padded.tokens, (std::vector<std::int32_t>{100, 101, 102, 103, 104, 105, 106, 100}));
  EXPECT_EQ(padded.weights, (std::vector<float>{1, 1, 1, 1, 1, 1, 1, 0}));
}

}  // namespace
}  // namespace ztrain::data::batch_part_test
