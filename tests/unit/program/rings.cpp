// The joint proof of messages that go round a ring, and of exchanges among all.

#include <gtest/gtest.h>

#include "program/ops/step_ops.hpp"
#include "tests/support/joint_ranks.hpp"

namespace ztrain::test::rings_test {
namespace {

/// Shifts ('1' to '9': by so much) and exchanges ('x') of a ring of 16, in this order; of one rank in
/// another.
std::string ring(const std::string& order, const std::string& of_rank_7) {
  Ranks ranks(16, Axis::context);
  for (int rank = 0; rank < 16; ++rank) {
    Builder& b = ranks[rank];
    const TensorId in = b.persistent("in", 32), out = b.persistent("out", 32);
    for (const char what : rank == 7 ? of_rank_7 : order) {
      if (what == 'x')
        emit_all_to_all(b.program, "exchange", in, out, Axis::context, {});
      else
        emit_shift(b.program, "shift", in, out, Axis::context, what - '0', {});
    }
  }
  return ranks.verdict();
}

TEST(Rings, OfShiftsAndExchangesAreProven) {
  EXPECT_EQ(ring("1111111111111111", "1111111111111111"), "accepted");
  EXPECT_EQ(ring("x12x", "x12x"), "accepted");
}

TEST(Rings, OfWhichOneRankIsOutOfOrderAreRefused) {
  expect_says(ring("12", "21"), {"shift of 32 fp32 into 32 fp32 by 1", "by 2", "rank"});
  expect_says(ring("1x", "x1"), {"shift of 32", "all_to_all of 32"});
  expect_says(ring("11", "1"), {"rank 7"});
}

}  // namespace
}  // namespace ztrain::test::rings_test
