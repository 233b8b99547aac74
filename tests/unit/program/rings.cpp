// The joint proof of messages that go round a ring, and of exchanges among all; what attention that goes
// round a ring holds, and what it goes beside.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "program/ops/step_ops.hpp"
#include "tests/support/joint_ranks.hpp"
#include "tests/support/small_job.hpp"

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

program::Job ring_job(int recompute) {
  program::JobSpec spec = spec_on(1, 1, program::find_strategy("FULL_SHARD"), 1);
  spec.mesh[Axis::context] = 8;
  spec.context = model::ContextMethod::ring;
  spec.recompute.every = recompute;
  return program::compile(small_model(), spec, 3);
}

/// Beside its own a rank holds the keys that it attends to and those that arrive, whatever is recomputed; and
/// of their gradients those that it makes, its own, those that arrive and those that leave.
TEST(RingAttention, HoldsTheKeysOfTwoOtherRanks) {
  for (const int recompute : {0, 1}) {
    const program::Job job = ring_job(recompute);
    const program::Program& p = job.train();
    for (const auto& [name, most] : {std::pair{".attention.k.", 2},
                                     {".attention.v.", 2},
                                     {".attention.dk.", 4},
                                     {".attention.dv.", 4}}) {
      int found = 0;
      for (program::OpId id = 0; id < static_cast<program::OpId>(p.ops.size()); ++id) {
        int alive = 0;
        for (const program::Tensor& t : p.tensors)
          alive += t.name.find(name) != std::string::npos && t.first <= id && id <= t.last && t.first >= 0;
        found = std::max(found, alive);
      }
      EXPECT_EQ(found, most) << name << " recompute " << recompute;
    }
  }
}

/// Shifts of keys, and of their gradients, are issued before the attention that they go beside, which waits
/// for none of them.
TEST(RingAttention, WaitsForNoShiftThatGoesBesideIt) {
  const program::Job job = ring_job(0);
  const program::Program& p = job.train();
  std::map<std::string, int> beside;
  std::vector<program::OpId> issued;
  for (program::OpId id = 0; id < static_cast<program::OpId>(p.ops.size()); ++id) {
    const program::Op& op = p.op(id);
    if (op.comm.kind == program::CommKind::shift) issued.push_back(id);
    if (!op.type.starts_with("attention_part")) continue;
    for (const program::OpId after : op.after)
      EXPECT_TRUE(issued.empty() || after < issued.front())
          << describe(p, id) << " waits for " << describe(p, after);
    beside[op.type] += static_cast<int>(issued.size());
    issued.clear();
  }
  EXPECT_EQ(beside["attention_part"], 2 * 2 * 7) << "keys and values, of two layers";
  EXPECT_EQ(beside["attention_part_grad"], 2 * 2 * (7 + 6) + 2)
      << "and gradients; one layer's come home before";
}

}  // namespace
}  // namespace ztrain::test::rings_test
