// The messages and sums of reductions that are exchanged rank by rank, played by one process for all ranks.
#include "runtime/comm/sum_steps.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <utility>

#include "base/shape.hpp"
#include "runtime/comm/rank_sum.hpp"
#include "tests/support/comm_values.hpp"

namespace ztrain::sum_steps_test {
namespace {

using namespace ztrain::runtime;
using test::element;
using test::same_bits;

/// Bytes that one rank sent, in all and to other nodes.
struct Sent {
  std::int64_t all = 0, out_of_node = 0;
};

/// A rank's memory. The workspace has the bytes of the formula and no more.
struct Rank {
  std::vector<bf16> full, sum;
  std::vector<std::byte> workspace;
  std::vector<SumStep> steps;
};

std::vector<Rank> ranks_of(SumGroup group, const Slices& slices) {
  std::vector<Rank> ranks(static_cast<std::size_t>(group.ranks));
  for (int r = 0; r < group.ranks; ++r) {
    Rank& rank = ranks[static_cast<std::size_t>(r)];
    rank.full = test::contribution<bf16>(r, slices.step * group.ranks);
    rank.sum = test::contribution<bf16>(77 + r, slices.length(r));
    rank.workspace.resize(
        static_cast<std::size_t>(reduce_scatter_workspace(group, DType::bf16, slices.longest)));
    rank.steps = sum_steps(
        group, r, {rank.full.data(), DType::bf16, rank.sum.data(), DType::bf16, true, rank.workspace.data()},
        slices);
  }
  return ranks;
}

void expect_inside(const Rank& rank, const void* data, std::int64_t bytes) {
  const auto* const begin = rank.workspace.data();
  const auto* const at = static_cast<const std::byte*>(data);
  EXPECT_TRUE(bytes == 0 || (at >= begin && at + bytes <= begin + rank.workspace.size()));
}

/// Runs one step of all ranks: messages between two ranks arrive in the order sent.
void run_step(SumGroup group, std::vector<Rank>& ranks, std::size_t step, std::vector<Sent>& sent) {
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> wires;
  for (int r = 0; r < group.ranks; ++r)
    for (const SumSend& s : ranks[static_cast<std::size_t>(r)].steps[step].sends) {
      ASSERT_NE(s.to, r);
      const auto* const data = static_cast<const std::byte*>(s.data);
      wires[{r, s.to}].emplace_back(data, data + s.bytes);
      sent[static_cast<std::size_t>(r)].all += s.bytes;
      if (s.to / group.on_node != r / group.on_node) sent[static_cast<std::size_t>(r)].out_of_node += s.bytes;
    }
  for (int r = 0; r < group.ranks; ++r) {
    Rank& rank = ranks[static_cast<std::size_t>(r)];
    for (const SumReceive& receive : rank.steps[step].receives) {
      auto& wire = wires[{receive.from, r}];
      ASSERT_FALSE(wire.empty()) << receive.from << " to " << r;
      ASSERT_EQ(std::ssize(wire.front()), receive.bytes) << receive.from << " to " << r;
      expect_inside(rank, receive.data, receive.bytes);
      std::ranges::copy(wire.front(), static_cast<std::byte*>(receive.data));
      wire.pop_front();
    }
    for (const SumWork& s : rank.steps[step].sums)
      host_rank_sum_work(s.in, s.out, s.accumulate, s.sources, s.to, s.count)(nullptr);
  }
  for (const auto& [pair, wire] : wires) EXPECT_TRUE(wire.empty()) << pair.first << " to " << pair.second;
}

/// Runs all steps, and returns what each rank sent.
std::vector<Sent> run(SumGroup group, const Slices& slices) {
  std::vector<Rank> ranks = ranks_of(group, slices);
  std::vector<Sent> sent(ranks.size());
  for (std::size_t step = 0; step < ranks.front().steps.size(); ++step) run_step(group, ranks, step, sent);
  for (int r = 0; r < group.ranks; ++r) {
    std::vector<bf16> expected = test::contribution<bf16>(77 + r, slices.length(r));
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] =
          test::reduced<bf16>(group, r * slices.step + static_cast<std::int64_t>(i), expected[i], true);
    EXPECT_TRUE(same_bits(ranks[static_cast<std::size_t>(r)].sum, expected)) << "rank " << r;
  }
  return sent;
}

constexpr std::pair<int, int> groups[] = {{1, 1}, {4, 4}, {4, 2}, {6, 3}, {9, 3}, {16, 4}, {16, 8}};

TEST(SumSteps, ReduceScatterAddsUpByNode) {
  for (const auto& [ranks, on_node] : groups)
    for (const std::int64_t count : {1, 7, 64})
      for (const std::int64_t stride : {count, count + 3}) {
        const SumGroup group(ranks, on_node);
        for (const Sent& sent : run(group, reduce_scatter_slices(ranks, count, stride))) {
          EXPECT_EQ(sent.all, reduce_scatter_sent(group, DType::bf16, count));
          EXPECT_EQ(sent.out_of_node, group.by_node(DType::bf16)
                                          ? partial_sums_out_of_node(group, count)
                                          : (ranks - on_node) * count * size_of(DType::bf16));
        }
      }
}

TEST(SumSteps, AllReduceHasShortSlices) {
  for (const auto& [ranks, on_node] : groups)
    for (const std::int64_t count : {0, 1, 5, 16, 33, 100}) {
      const SumGroup group(ranks, on_node);
      const Slices slices = all_reduce_slices(ranks, count);
      const std::vector<Sent> sent = run(group, slices);
      for (int r = 0; r < ranks; ++r) {
        const std::int64_t gather = (ranks - 1) * slices.length(r) * size_of(DType::bf16);
        EXPECT_EQ(sent[static_cast<std::size_t>(r)].all + gather,
                  all_reduce_sent(group, r, DType::bf16, count));
      }
    }
}

// Two nodes of eight: one partial sum in fp32 instead of eight contributions in bf16.
TEST(SumSteps, AQuarterOfTheBytesLeavesTheNode) {
  const std::int64_t count = 64;
  std::int64_t out_of_node = 0, rank_by_rank = 0;
  const SumGroup group(16, 8);
  for (const Sent& sent : run(group, reduce_scatter_slices(16, count, count)))
    out_of_node += sent.out_of_node;
  const auto ranks = ranks_of({16, 16}, reduce_scatter_slices(16, count, count));  // the order of one node
  for (int r = 0; r < 16; ++r)
    for (const SumSend& s : ranks[static_cast<std::size_t>(r)].steps[0].sends)
      if (s.to / 8 != r / 8) rank_by_rank += s.bytes;
  EXPECT_EQ(4 * out_of_node, rank_by_rank);
}

TEST(SumGroup, FollowsTheNodesOfTheMesh) {
  MeshShape mesh;
  mesh[Axis::replicate] = 2, mesh[Axis::shard] = 4, mesh[Axis::tensor] = 2;
  const auto check = [&](int per_node, AxisSet axes, int ranks, int on_node) {
    mesh.per_node = per_node;
    const SumGroup group = sum_group(mesh, axes);
    EXPECT_EQ(group.ranks, ranks) << to_string(axes) << ", " << per_node << " on a node";
    EXPECT_EQ(group.on_node, on_node) << to_string(axes) << ", " << per_node << " on a node";
    for (int r = 0; per_node > 0 && on_node < ranks && r < mesh.ranks(); ++r) {
      const std::vector<int> members = Coordinate(mesh, r).group(axes);
      for (int m = 0; m < ranks; ++m)
        EXPECT_EQ(members[at(m)] / per_node, members[at(m / on_node * on_node)] / per_node) << r << " " << m;
    }
  };
  const AxisSet data = Axis::replicate | Axis::shard;
  check(0, data, 8, 8);
  check(16, data, 8, 8);
  check(8, data, 8, 4);
  check(4, data, 8, 2);
  check(2, data, 8, 1);
  check(8, Axis::shard, 4, 4);
  check(4, Axis::shard, 4, 2);
  check(8, AxisSet::all(), 16, 8);
  check(8, Axis::tensor, 2, 2);
  check(6, AxisSet::all(), 16, 16);  // nodes of 6, 6 and 4
  mesh = {};
  mesh[Axis::shard] = 4, mesh[Axis::tensor] = 3;
  check(4, Axis::shard, 4, 4);  // ranks 0, 3, 6, 9 on nodes 0, 0, 1, 2
  mesh = {};
  mesh[Axis::replicate] = 9, mesh[Axis::shard] = 8;
  check(36, Axis::shard, 8, 8);  // ranks 32 to 39 on two nodes, the other groups on one
  mesh = {};
  mesh[Axis::shard] = 16, mesh.inner_of(Axis::shard) = 8;
  check(4, AxisSet::inner(Axis::shard), 8, 4);
  EXPECT_TRUE(SumGroup(16, 8).by_node(DType::f16));
  EXPECT_FALSE(SumGroup(16, 8).by_node(DType::f32)) << "NCCL sums it in rings";
  EXPECT_FALSE(SumGroup(16, 2).by_node(DType::bf16)) << "no fewer bytes";
}

}  // namespace
}  // namespace ztrain::sum_steps_test
