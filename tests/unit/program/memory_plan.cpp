// Lifetimes, placement and the dependencies that the reuse of bytes needs.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>

#include "program/memory/addresses.hpp"
#include "tests/support/transformer_program.hpp"

namespace ztrain::test::memory_plan_test {
namespace {

const TierPlan& device(const Program& p) {
  return p.plan[0];
}

TEST(Lifetimes, CoverViewsAndEndAtTheRelease) {
  Builder b;
  const TensorId whole = b.transient("whole", 64), half = b.view("half", whole, 0, 32);
  const TensorId other = b.transient("other", 64), kept = b.persistent("kept", 64);
  b.op("fill", Stream::compute, {kept}, {other});
  b.op("fill", Stream::compute, {}, {whole});
  b.op("copy", Stream::compute, {half}, {other});
  b.release(whole);
  b.op("copy", Stream::compute, {other}, {kept});
  plan_lifetimes(b.program);
  EXPECT_EQ(b.program.tensor(whole).first, 1);
  EXPECT_EQ(b.program.tensor(whole).last, 3);
  EXPECT_EQ(b.program.tensor(other).first, 0);
  EXPECT_EQ(b.program.tensor(other).last, 4);
  EXPECT_EQ(b.program.tensor(half).first, -1);
  EXPECT_EQ(b.program.tensor(kept).first, -1);
  // A use after the release is left outside, for the verifier to refuse.
  b.op("copy", Stream::compute, {half}, {kept});
  plan_lifetimes(b.program);
  EXPECT_EQ(b.program.tensor(whole).last, 3);
}

TEST(MemoryPlan, PlacesPersistentTensorsInOrderAndTiersApart) {
  Builder b;
  const TensorId one = b.persistent("one", 65), two = b.persistent("two", 1);
  const TensorId on_host = b.transient("on host", 100, Tier::host), on_device = b.transient("on device", 10);
  b.op("copy", Stream::to_device, {one}, {on_host});
  b.op("fill", Stream::compute, {two}, {on_device});
  b.op("copy", Stream::to_device, {on_host}, {one});
  b.op("use", Stream::compute, {on_device}, {});
  b.finish();
  EXPECT_EQ(b.program.tensor(one).address, 0);
  EXPECT_EQ(b.program.tensor(two).address, 512);
  EXPECT_EQ(device(b.program).persistent_bytes, 768);
  EXPECT_EQ(device(b.program).transient_bytes, 256);
  EXPECT_EQ(b.program.plan[1].transient_bytes, 4096);
  EXPECT_EQ(b.program.plan[1].live_bytes, 4096);
  verify_rank(b.program);
}

/// a is made on gather, read on compute and on copy; b takes its bytes on reduce.
struct Crossing : Builder {
  TensorId a, b;
  OpId make, read, copy, again;
  explicit Crossing(bool ordered) {
    a = transient("a", 64);
    b = transient("b", 64);
    const TensorId token = persistent("token", 1);
    make = op("make", Stream::gather, {}, {a});
    read = op("read", Stream::compute, {a}, {token});
    copy = op("copy", Stream::to_device, {a}, {});
    if (ordered) op("see", Stream::reduce, {token}, {});
    again = op("make", Stream::reduce, {}, {b});
    op("read", Stream::reduce, {b}, {});
    finish();
  }
};

TEST(MemoryPlan, AddsOnlyTheDependenciesThatReuseNeeds) {
  const Crossing c(false);
  EXPECT_EQ(c.program.tensor(c.a).address, c.program.tensor(c.b).address);
  EXPECT_EQ(device(c.program).transient_bytes, 256);
  // The writer is implied by its readers.
  EXPECT_EQ(c.program.op(c.again).after, (std::vector<OpId>{c.read, c.copy}));
  verify_rank(c.program);
  const Crossing d(true);
  EXPECT_EQ(d.program.op(d.again).after, (std::vector<OpId>{d.copy}));
  verify_rank(d.program);
}

TEST(MemoryPlan, OrdersEveryFirstWriteOfAReusingTensor) {
  Builder b;
  const TensorId old = b.transient("old", 128), fresh = b.transient("fresh", 128);
  const TensorId left = b.view("left", fresh, 0, 64), right = b.view("right", fresh, 64, 64);
  b.op("make", Stream::compute, {}, {old});
  const OpId use = b.op("use", Stream::compute, {old}, {});
  b.op("make", Stream::compute, {}, {left});
  const OpId second = b.op("make", Stream::gather, {}, {right});
  b.op("use", Stream::compute, {fresh}, {});
  b.finish();
  EXPECT_EQ(b.program.tensor(old).address, b.program.tensor(fresh).address);
  EXPECT_EQ(b.program.op(second).after, std::vector<OpId>{use});
  verify_rank(b.program);
}

void expect_apart(const std::vector<Block>& blocks, const Addresses& placement) {
  for (std::size_t a = 0; a < blocks.size(); ++a) {
    ASSERT_LE(placement.address[a] + blocks[a].size, placement.extent);
    for (std::size_t b = 0; b < a; ++b) {
      if (blocks[a].first > blocks[b].last || blocks[b].first > blocks[a].last) continue;
      ASSERT_TRUE(placement.address[a] + blocks[a].size <= placement.address[b] ||
                  placement.address[b] + blocks[b].size <= placement.address[a])
          << "blocks " << a << " and " << b;
    }
  }
}

/// The definition of first fit, pair by pair.
std::int64_t lowest_by_definition(const std::vector<Block>& blocks, const std::vector<std::int64_t>& address,
                                  int b) {
  std::vector<std::pair<std::int64_t, std::int64_t>> taken;
  const Block& block = blocks[static_cast<std::size_t>(b)];
  for (std::size_t o = 0; o < blocks.size(); ++o)
    if (address[o] >= 0 && blocks[o].first <= block.last && block.first <= blocks[o].last)
      taken.emplace_back(address[o], address[o] + blocks[o].size);
  std::sort(taken.begin(), taken.end());
  std::int64_t lowest = 0;
  for (const auto& [begin, end] : taken) {
    if (begin - lowest >= block.size) break;
    lowest = std::max(lowest, end);
  }
  return lowest;
}

TEST(Addresses, KeepsRandomBlocksApartAndFirstFitIsFirstFit) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 60; ++trial) {
    const std::size_t ops = 1 + random() % 150;
    std::vector<Block> blocks(random() % 120 + 1);
    std::vector<int> order;
    for (Block& block : blocks) {
      block.first = static_cast<OpId>(random() % ops);
      block.last =
          static_cast<OpId>(std::min<std::size_t>(ops - 1, block.first + random() % (trial % 2 ? 8 : ops)));
      block.size = 256 * static_cast<std::int64_t>(1 + random() % 20);
      order.push_back(static_cast<int>(order.size()));
    }
    const std::int64_t live = live_bytes(blocks, ops);
    for (const Addresses& placement :
         {place_online(blocks, ops, false), place_online(blocks, ops, true), choose_addresses(blocks, ops)}) {
      expect_apart(blocks, placement);
      EXPECT_GE(placement.extent, live);
    }
    const Addresses fit = place_first_fit(blocks, order, ops, {1 << 30});
    std::vector<std::int64_t> by_definition(blocks.size(), -1);
    for (const int b : order)
      by_definition[static_cast<std::size_t>(b)] = lowest_by_definition(blocks, by_definition, b);
    EXPECT_EQ(fit.address, by_definition);
    EXPECT_EQ(place_first_fit(blocks, order, ops, {0}).extent, -1);
    EXPECT_EQ(place_first_fit(blocks, order, ops, {1 << 30, fit.extent}).address, fit.address);
    EXPECT_EQ(place_first_fit(blocks, order, ops, {1 << 30, fit.extent - 1}).extent, -1);
  }
}

/// Chains of blocks, each over before the next begins, among others that have addresses of their own.
TEST(Addresses, BlocksThatAreToShareAnAddressDo) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 60; ++trial) {
    constexpr std::size_t ops = 150;
    std::vector<Block> blocks;
    std::vector<int> next, order;
    for (int chain = 0; chain < 20; ++chain) {
      const auto size = 256 * static_cast<std::int64_t>(1 + random() % 20);
      const auto links = 1 + random() % 3;
      OpId begin = static_cast<OpId>(random() % 40);
      for (std::size_t link = 0; link < links; ++link) {
        const OpId end = begin + static_cast<OpId>(random() % 30);
        next.push_back(link + 1 < links ? static_cast<int>(blocks.size()) + 1 : -1);
        order.push_back(static_cast<int>(blocks.size()));
        blocks.push_back({size, begin, end});
        begin = end + 1 + static_cast<OpId>(random() % 5);
      }
    }
    std::ranges::shuffle(order, random);
    for (const Addresses& placement :
         {choose_addresses(blocks, ops, next), place_first_fit(blocks, order, ops, {1 << 30}, next)}) {
      expect_apart(blocks, placement);
      for (std::size_t b = 0; b < blocks.size(); ++b)
        if (next[b] >= 0) {
          ASSERT_EQ(placement.address[b], placement.address[static_cast<std::size_t>(next[b])]);
        }
    }
  }
  EXPECT_EQ(choose_addresses({{256, 0, 3}, {256, 3, 5}}, 6, {1, -1}).extent, -1) << "both live at 3";
  EXPECT_EQ(choose_addresses({{256, 0, 3}, {256, 4, 5}}, 6, {1, -1}).extent, 256);
}

TEST(Addresses, StackedLifetimesNeedNoMoreThanLive) {
  std::vector<Block> blocks;
  for (int i = 0; i < 50; ++i) blocks.push_back({256 * (1 + (i * 7) % 5), i, 99 - i});
  EXPECT_EQ(choose_addresses(blocks, 100).extent, live_bytes(blocks, 100));
}

double seconds(const std::chrono::steady_clock::time_point& since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

void plan_transformer(const TransformerShape& shape) {
  TransformerProgram b(shape);
  const auto start = std::chrono::steady_clock::now();
  link_dependencies(b.program);
  const double linked = seconds(start);
  plan_lifetimes(b.program);
  plan_memory(b.program);
  const double planned = seconds(start);
  verify_rank(b.program);
  const double verified = seconds(start);
  verify_no_deadlock({&b.program}, {{0, 1, 2, 3, 4, 5, 6, 7}});
  const TierPlan& plan = device(b.program);
  std::printf(
      "%d layers, %d micro-batches%s%s: %zu ops, %zu tensors; link %.3f s, lifetimes and memory %.3f s, "
      "verify_rank %.3f s, "
      "verify_no_deadlock %.3f s; extent/live %.4f\n",
      shape.layers, shape.micros, shape.recompute ? ", recompute" : "",
      shape.accumulate ? ", whole gradients kept" : "", b.program.ops.size(), b.program.tensors.size(),
      linked, planned - linked, verified - planned, seconds(start) - verified,
      static_cast<double>(plan.transient_bytes) / static_cast<double>(plan.live_bytes));
  EXPECT_GE(plan.transient_bytes, plan.live_bytes);
  EXPECT_LE(static_cast<double>(plan.transient_bytes), 1.02 * static_cast<double>(plan.live_bytes));
}

TEST(MemoryPlan, StaysWithinTwoPercentOfLiveForTransformers) {
  for (const bool recompute : {false, true})
    for (const bool accumulate : {false, true})
      plan_transformer({.recompute = recompute, .accumulate = accumulate});
  plan_transformer({.layers = 2, .micros = 1});
  plan_transformer({.layers = 80, .micros = 48, .recompute = true});
}

}  // namespace
}  // namespace ztrain::test::memory_plan_test
