// The joint graph of several ranks: matching communications, and no circle of waits.

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>

#include "tests/support/joint_ranks.hpp"

namespace ztrain::test::verify_no_deadlock_test {
namespace {

using Axes = AxisSet;

/// Gathers two units and reduces a gradient, in the given order ('g': gather, 'r': reduce).
void sharded(Builder& b, const std::string& order, std::int64_t shard = 256) {
  const TensorId own = b.persistent("shard", shard), sum = b.persistent("sum", shard);
  const TensorId gradient = b.persistent("gradient", 2 * shard);
  for (const char what : order) {
    if (what == 'g')
      b.communicate(CommKind::all_gather, Axis::shard, Stream::gather, {own},
                    {b.transient("full", 2 * shard)});
    else
      b.communicate(CommKind::reduce_scatter, Axis::shard, Stream::reduce, {gradient}, {sum});
  }
}

TEST(VerifyJoint, AcceptsMatchingRanksAndClasses) {
  Ranks ranks(2, Axis::shard);
  sharded(ranks[0], "ggr");
  sharded(ranks[1], "ggr");
  EXPECT_EQ(ranks.verdict(), "accepted");
  EXPECT_NO_THROW(verify_no_deadlock({&ranks[0].program}, {{0, 1}}));
  EXPECT_THROW(verify_no_deadlock({&ranks[0].program}, {{0, 2}}), Error);
  EXPECT_THROW(verify_no_deadlock({&ranks[0].program, &ranks[1].program}, {{0, 1}, {1}}), Error);
}

TEST(VerifyJoint, RefusesSwappedCollectives) {
  Ranks ranks(2, Axis::shard);
  sharded(ranks[0], "ggr");
  sharded(ranks[1], "grg");
  expect_says(ranks.verdict(),
              {"rank 0 issues forward: all_gather of step 1 (op 1)", "as number 2 of group shard{0,1}",
               "rank 1 issues forward: reduce_scatter of step 1 (op 1)"});
}

TEST(VerifyJoint, RefusesOtherSizesAndOtherNumbers) {
  Ranks sizes(2, Axis::shard);
  sharded(sizes[0], "g");
  sharded(sizes[1], "g", 512);
  expect_says(sizes.verdict(),
              {"all_gather of 256 fp32 into 512 fp32", "all_gather of 512 fp32 into 1024 fp32"});
  Ranks types(2, Axis::shard);
  for (int rank = 0; rank < 2; ++rank) {
    sharded(types[rank], "r");
    types[rank].program.tensor(1).dtype = rank == 0 ? DType::f32 : DType::bf16;
  }
  expect_says(types.verdict(), {"into 256 fp32", "into 256 bf16"});
  for (const int more : {0, 1}) {
    Ranks numbers(2, Axis::shard);
    sharded(numbers[more], "ggr");
    sharded(numbers[1 - more], "gg");
    expect_says(numbers.verdict(),
                {more == 0 ? "rank 0 issues forward: reduce_scatter" : "rank 1 issues forward: red",
                 "number 3 of group shard{0,1}", "issues only 2 there"});
  }
}

/// One member of a large group issues nothing at all: every other one agrees.
TEST(VerifyJoint, RefusesASilentMember) {
  Ranks ranks(4, Axis::shard);
  for (const int rank : {0, 1, 3}) sharded(ranks[rank], "g");
  expect_says(ranks.verdict(),
              {"rank 0 issues forward: all_gather of step 0 (op 0)", "rank 2 issues only 0"});
  Ranks first(4, Axis::shard);
  for (const int rank : {1, 2, 3}) sharded(first[rank], "g");
  expect_says(first.verdict(), {"issues forward: all_gather of step 0 (op 0)", "rank 0 issues only 0"});
}

/// Two pipeline stages; actions: 's' sends to the other rank, 'r' receives from it, 'w' computes on what was
/// received.
void stage(Builder& b, const std::string& actions, std::int64_t count = 64) {
  const int other = 1 - b.program.rank;
  TensorId received = no_tensor;
  const TensorId own = b.persistent("own", count);
  for (const char what : actions) {
    if (what == 's') b.communicate(CommKind::send, Axis::pipeline, Stream::p2p, {own}, {}, other);
    if (what == 'r') {
      received = b.transient("received", count);
      b.communicate(CommKind::recv, Axis::pipeline, Stream::p2p, {}, {received}, other);
    }
    if (what == 'w') b.op("work", Stream::compute, {received}, {});
  }
}
std::string stages(const std::string& zero, const std::string& one, std::int64_t count_of_one = 64) {
  Ranks ranks(2, Axis::pipeline);
  stage(ranks[0], zero);
  stage(ranks[1], one, count_of_one);
  return ranks.verdict();
}

TEST(VerifyJoint, MatchesMessages) {
  EXPECT_EQ(stages("ssrw", "rwrws"), "accepted");
  expect_says(stages("ss", "rw"),
              {"rank 0 issues forward: send of step 1 (op 1)",
               "number 2 of the messages from rank 0 to rank 1 over pipeline", "rank 1 issues only 1 there"});
  expect_says(stages("s", "rwr"),
              {"rank 1 issues forward: recv of step 2 (op 2)", "rank 0 issues only 1 there"});
  expect_says(stages("", "r"), {"rank 1 issues forward: recv", "rank 0 issues only 0"});
  expect_says(stages("s", "r", 32), {"send of 64 fp32", "recv of 32 fp32"});
}

/// Two stages that issue some of their ops several times.
std::string repeated_stages(const std::string& zero, const Repeat& of_zero, const std::string& one,
                            const Repeat& of_one) {
  Ranks ranks(2, Axis::pipeline);
  stage(ranks[0], zero);
  stage(ranks[1], one);
  for (Builder& b : ranks.builders) b.finish();
  ranks[0].program.repeat = of_zero;
  ranks[1].program.repeat = of_one;
  return joint_verdict({&ranks[0].program, &ranks[1].program}, {{0}, {1}});
}

TEST(VerifyJoint, MatchesMessagesThatAreRepeated) {
  EXPECT_EQ(repeated_stages("sss", {1, 2, 3}, "rrr", {1, 2, 3}), "accepted");
  expect_says(repeated_stages("sss", {1, 2, 3}, "rrr", {1, 2, 4}), {"send of 64 fp32, 3 times", "4 times"});
  expect_says(repeated_stages("sss", {1, 2, 3}, "rrr", {0, 1, 3}), {"send of 64 fp32", "3 times"});
  // Beside a stage of which nothing is repeated the whole steps are looked at.
  EXPECT_EQ(repeated_stages("ss", {0, 0, 1}, "rwr", {1, 2, 3}), "accepted");
  EXPECT_EQ(repeated_stages("ssss", {0, 0, 1}, "rwr", {2, 3, 3}), "accepted");
  expect_says(repeated_stages("sss", {0, 0, 1}, "rwr", {2, 3, 3}), {"only 3 there"});
}

TEST(VerifyJoint, RefusesMessagesThatWaitForEachOther) {
  EXPECT_EQ(stages("sr", "rs"), "accepted");
  // Both receive first: each send is behind a receive on the same stream.
  const std::string said = stages("rs", "rs");
  expect_says(said, {"deadlock",
                     "rank 0 issues forward: send of step 1 (op 1) only when forward: recv of step 0 (op 0)",
                     "for which rank 1 must issue forward: send of step 1 (op 1)",
                     "rank 1 issues forward: send of step 1"});
}

/// Rank 0 starts a gather over shard and one over tensor on two streams, each after work that waits for the
/// other's counterpart: no stream alone is out of order.
TEST(VerifyJoint, RefusesACircleOverTwoStreamsAndTwoGroups) {
  for (const bool swapped : {false, true}) {
    Ranks ranks(2, Axis::shard);
    for (int rank = 0; rank < 2; ++rank) {
      Builder& b = ranks[rank];
      const TensorId own = b.persistent("own", 8), a = b.transient("a", 16), c = b.transient("c", 16);
      const TensorId token = b.transient("token", 1);
      const auto first = [&](bool waits) {
        b.communicate(CommKind::all_gather, Axis::shard, Stream::gather,
                      waits ? std::vector<TensorId>{own, token} : std::vector<TensorId>{own}, {a});
      };
      const auto second = [&](bool waits) {
        b.communicate(CommKind::all_gather, Axis::shard | Axis::context, Stream::reduce,
                      waits ? std::vector<TensorId>{own, token} : std::vector<TensorId>{own}, {c});
      };
      if (rank == 0 || !swapped) {
        first(false);
        b.op("work", Stream::compute, {a}, {token});
        second(true);
      } else {
        second(false);
        b.op("work", Stream::compute, {c}, {token});
        first(true);
      }
    }
    if (!swapped)
      EXPECT_EQ(ranks.verdict(), "accepted");
    else
      expect_says(ranks.verdict(),
                  {"deadlock", "rank 0 issues forward: work of step 1 (op 1) only when",
                   "all_gather of step 0 (op 0) is complete, for which rank 1 must issue",
                   "all_gather of step 2 (op 2)", "rank 1 issues forward: work of step 1 (op 1)"});
  }
}

TEST(VerifyJoint, FindsACircleThroughManyRanks) {
  // Each rank receives from its left neighbour before it sends to the right one.
  for (const bool broken : {false, true}) {
    Ranks ranks(6, Axis::pipeline);
    for (int rank = 0; rank < 6; ++rank) {
      Builder& b = ranks[rank];
      const TensorId own = b.persistent("own", 8), in = b.transient("in", 8);
      const auto send = [&] {
        b.communicate(CommKind::send, Axis::pipeline, Stream::p2p, {own}, {}, (rank + 1) % 6);
      };
      const auto recv = [&] {
        b.communicate(CommKind::recv, Axis::pipeline, Stream::p2p, {}, {in}, (rank + 5) % 6);
      };
      if (rank == 0 && !broken) {
        send();
        recv();
      } else {
        recv();
        send();
      }
    }
    if (!broken)
      EXPECT_EQ(ranks.verdict(), "accepted");
    else
      expect_says(ranks.verdict(), {"rank 0 issues", "rank 1 issues", "rank 2 issues", "rank 3 issues",
                                    "rank 4 issues", "rank 5 issues"});
  }
}

/// The graph itself, node by node: a start per op, a completion per op or per communication of all its
/// members.
bool has_cycle(const std::vector<const Program*>& ranks) {
  std::map<std::tuple<int, int, int, int>, int> instances;  // (axes, from or group, to, ordinal)
  std::vector<std::vector<int>> next;
  const auto node = [&] {
    next.emplace_back();
    return static_cast<int>(next.size()) - 1;
  };
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::map<std::tuple<int, int, int>, int> issued;
    std::vector<int> done;
    std::map<Stream, int> tail;
    int previous = node();
    for (const Op& op : ranks[r]->ops) {
      const int start = node();
      next[static_cast<std::size_t>(previous)].push_back(start);
      if (tail.contains(op.stream)) next[static_cast<std::size_t>(tail[op.stream])].push_back(start);
      for (const OpId a : op.after)
        next[static_cast<std::size_t>(done[static_cast<std::size_t>(a)])].push_back(start);
      int complete = -1;
      if (op.communicates()) {
        const int own = static_cast<int>(r), peer = op.comm.peer;
        std::tuple<int, int, int> key{op.comm.axes.bits(), -1, -1};
        if (op.comm.kind == CommKind::send) key = {op.comm.axes.bits(), own, peer};
        if (op.comm.kind == CommKind::recv) key = {op.comm.axes.bits(), peer, own};
        const auto [axes, from, to] = key;
        const auto [it, fresh] = instances.insert({{axes, from, to, issued[key]++}, -1});
        if (fresh) it->second = node();
        complete = it->second;
      } else {
        complete = node();
      }
      next[static_cast<std::size_t>(start)].push_back(complete);
      done.push_back(complete);
      tail[op.stream] = complete;
      previous = op.communicates() ? start : complete;
    }
  }
  std::vector<int> missing(next.size(), 0), ready;
  for (const auto& targets : next)
    for (const int n : targets) ++missing[static_cast<std::size_t>(n)];
  for (std::size_t n = 0; n < next.size(); ++n)
    if (missing[n] == 0) ready.push_back(static_cast<int>(n));
  std::size_t seen = 0;
  for (; !ready.empty(); ++seen) {
    const int n = ready.back();
    ready.pop_back();
    for (const int m : next[static_cast<std::size_t>(n)])
      if (--missing[static_cast<std::size_t>(m)] == 0) ready.push_back(m);
  }
  return seen < next.size();
}

TEST(VerifyJoint, AgreesWithTheGraphItselfOnRandomRanks) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int cycles = 0, trials = 1500;
  for (int trial = 0; trial < trials; ++trial) {
    Ranks ranks(3, Axis::pipeline);
    const int messages = 1 + below(4);
    for (int m = 0; m < messages; ++m) {
      const int from = below(3), to = (from + 1 + below(2)) % 3;
      for (const int rank : {from, to}) {
        Builder& b = ranks[rank];
        const auto stream = below(3) == 0 ? Stream::to_device : Stream::p2p;
        const TensorId data = b.persistent("data", 4), token = b.persistent("token", 1);
        if (rank == from)
          b.communicate(CommKind::send, Axis::pipeline, stream, {data}, {token}, to);
        else
          b.communicate(CommKind::recv, Axis::pipeline, stream, {}, {data}, from);
      }
      if (below(2) == 0)
        for (int rank = 0; rank < 3; ++rank) {
          const TensorId one = ranks[rank].persistent("one", 4);
          ranks[rank].communicate(CommKind::all_reduce, Axis::pipeline, Stream::reduce, {one}, {one});
        }
    }
    std::vector<const Program*> programs;
    for (int rank = 0; rank < 3; ++rank) {
      std::vector<Op>& ops = ranks[rank].program.ops;
      // A neighbouring pair of different channels may swap places: the messages of one channel stay in order.
      for (int swaps = below(4); swaps > 0 && ops.size() > 1; --swaps) {
        const std::size_t i = static_cast<std::size_t>(below(static_cast<int>(ops.size()) - 1));
        if (ops[i].comm.kind != ops[i + 1].comm.kind || ops[i].comm.peer != ops[i + 1].comm.peer)
          std::swap(ops[i], ops[i + 1]);
      }
      for (std::size_t i = 1; i < ops.size(); ++i)
        if (below(3) == 0) ops[i].after.push_back(below(static_cast<int>(i)));
      programs.push_back(&ranks[rank].program);
    }
    const bool cycle = has_cycle(programs);
    cycles += cycle;
    const std::string said = joint_verdict(programs, {{0}, {1}, {2}});
    if (cycle)
      expect_says(said, {"deadlock"});
    else
      EXPECT_EQ(said, "accepted");
  }
  EXPECT_GT(cycles, trials / 10);
  EXPECT_LT(cycles, trials - trials / 10);
}

TEST(VerifyJoint, RunsAThousandRanksOfOneClass) {
  Builder b;
  b.program.mesh[Axis::shard] = 128;
  b.program.mesh[Axis::replicate] = 8;
  const TensorId own = b.persistent("own", 256), sum = b.persistent("sum", 256);
  for (int i = 0; i < 500; ++i) {
    const TensorId full = b.transient("full", 256 * 128);
    b.communicate(CommKind::all_gather, Axis::shard, Stream::gather, {own}, {full});
    b.op("work", Stream::compute, {full}, {});
    b.communicate(CommKind::all_reduce, Axis::replicate, Stream::reduce, {sum}, {sum});
  }
  b.finish();
  std::vector<int> all;
  for (int rank = 0; rank < 1024; ++rank) all.push_back(rank);
  EXPECT_NO_THROW(verify_no_deadlock({&b.program}, {all}));
}

TEST(VerifyJoint, MembersOfABroadcastNameOneRoot) {
  for (const int root_of_the_second : {0, 1}) {
    Ranks ranks(2, Axis::shard);
    for (int rank = 0; rank < 2; ++rank) {
      const TensorId payload = ranks[rank].persistent("payload", 64);
      ranks[rank].communicate(CommKind::broadcast, Axis::shard, Stream::gather, {payload}, {payload},
                              rank == 0 ? 0 : root_of_the_second);
    }
    if (root_of_the_second == 0)
      EXPECT_EQ(ranks.verdict(), "accepted");
    else
      expect_says(ranks.verdict(), {"from member 0", "from member 1"});
  }
}

}  // namespace
}  // namespace ztrain::test::verify_no_deadlock_test
