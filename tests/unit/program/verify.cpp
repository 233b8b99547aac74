// The verifier refuses broken Programs with a sentence that names the ops, and accepts what the passes make.

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "program/ir/order.hpp"
#include "tests/support/random_program.hpp"

namespace ztrain::test::verify_test {
namespace {

template <class Check>
std::string refusal(Check check) {
  try {
    check();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}
std::string refusal_of(const Program& program) {
  return refusal([&] { verify_rank(program); });
}

void expect_says(const std::string& said, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(said.find(part), std::string::npos) << "'" << part << "' is not in\n  " << said;
}

/// One unit of forward: gathered, used by two linears, released; its bytes are taken by a later tensor.
struct Forward : Builder {
  TensorId shard, gathered, weight, x, y, z, later;
  OpId gather, first, second, freed, made;
  Forward() {
    program.blocks = {"model.layers.0"};
    program.units = {"model.layers.0"};
    shard = persistent("shard", 512);
    x = persistent("x", 16);
    gathered = transient("gathered.model.layers.0", 1024);
    weight = view("weight", gathered, 256, 128);
    y = transient("y", 16);
    z = transient("z", 16);
    later = transient("later", 1024);
    gather = op("all_gather", Stream::gather, {shard}, {gathered}, {ActionKind::gather, 0});
    first = op("linear", Stream::compute, {x, weight}, {y}, {ActionKind::forward, 0, 0});
    second = op("linear", Stream::compute, {y, weight}, {z}, {ActionKind::forward, 0, 0});
    freed = release(gathered);
    made = op("all_gather", Stream::gather, {shard}, {later}, {ActionKind::gather, 0});
    op("linear", Stream::compute, {z, later}, {x}, {ActionKind::forward, 0, 0});
    finish();
  }
};

TEST(Link, WaitsForTheWriterOnceAndTheReaders) {
  const Forward f;
  EXPECT_EQ(f.program.op(f.first).after, std::vector<OpId>{f.gather});
  EXPECT_TRUE(f.program.op(f.second).after.empty());
  EXPECT_EQ(f.program.op(f.made).after, std::vector<OpId>{f.freed});
  EXPECT_EQ(refusal_of(f.program), "accepted");
}

TEST(Link, ViewsConflictOnlyWhereTheirBytesOverlap) {
  Builder b;
  const TensorId flat = b.transient("flat", 300);
  const TensorId left = b.view("left", flat, 0, 100), middle = b.view("middle", flat, 50, 100);
  const TensorId right = b.view("right", flat, 150, 150);
  const OpId fill = b.op("fill", Stream::compute, {}, {flat});
  const OpId look = b.op("look", Stream::compute, {flat}, {});
  const OpId w = b.op("write", Stream::gather, {}, {left});
  const OpId r = b.op("read", Stream::to_device, {right}, {});
  const OpId m = b.op("read", Stream::reduce, {middle}, {});
  const OpId o = b.op("write", Stream::io, {}, {right});
  b.finish();
  EXPECT_EQ(b.program.op(w).after, std::vector<OpId>{look});
  EXPECT_EQ(b.program.op(r).after, std::vector<OpId>{fill});
  EXPECT_EQ(b.program.op(m).after, std::vector<OpId>{w});
  EXPECT_EQ(b.program.op(o).after, (std::vector<OpId>{look, r}));
  EXPECT_EQ(refusal_of(b.program), "accepted");
}

TEST(VerifyRank, RefusesADroppedDependency) {
  Forward f;
  f.program.op(f.first).after.clear();
  expect_says(refusal_of(f.program),
              {"forward model.layers.0 micro 0: linear of step 1 (op 1) on stream compute reads 'weight', "
               "which gather "
               "model.layers.0: all_gather of step 0 (op 0) on stream gather writes",
               "a dependency is missing"});
}

TEST(VerifyRank, RefusesAWriteThatOvertakesARead) {
  Builder b;
  const TensorId w = b.persistent("w", 8);
  b.op("read", Stream::compute, {w}, {});
  const OpId write = b.op("write", Stream::to_device, {}, {w});
  const OpId over = b.op("write", Stream::io, {}, {w});
  b.finish();
  EXPECT_EQ(refusal_of(b.program), "accepted");
  Program broken = b.program;
  broken.op(write).after.clear();
  expect_says(refusal_of(broken),
              {"(op 1) on stream to device overwrites 'w', which", "(op 0) on stream compute reads"});
  broken = b.program;
  broken.op(over).after.clear();
  expect_says(refusal_of(broken),
              {"(op 2) on stream io overwrites 'w', which", "(op 1) on stream to device writes"});
}

TEST(VerifyRank, RefusesReuseThatNothingOrders) {
  Forward f;
  f.program.op(f.made).after.clear();
  expect_says(refusal_of(f.program), {"(op 4) on stream gather uses 'later'", "'gathered.model.layers.0'",
                                      "(op 3) on stream compute uses", "a dependency is missing"});
}

TEST(VerifyRank, RefusesABufferFreedEarly) {
  Forward f;
  f.program.tensor(f.gathered).last = f.first;
  expect_says(refusal_of(f.program), {"linear of step 2 (op 2) uses 'weight'",
                                      "only from gather model.layers.0", "(op 0) to forward", "(op 1)"});
  Forward g;
  std::swap(g.program.op(g.second), g.program.op(g.freed));
  link_dependencies(g.program);
  plan_lifetimes(g.program);
  plan_memory(g.program);
  expect_says(refusal_of(g.program),
              {"linear of step 2 (op 3) uses 'weight' after forward: release of step 3 (op 2) released it"});
}

TEST(VerifyRank, RefusesAReadBeforeAWrite) {
  Builder b;
  const TensorId t = b.transient("t", 100), start = b.view("start", t, 0, 60), end = b.view("end", t, 50, 50);
  b.op("use", Stream::compute, {start}, {});
  b.op("make", Stream::compute, {}, {start});
  b.op("use", Stream::compute, {end}, {});
  b.finish();
  expect_says(refusal_of(b.program), {"use of step 0 (op 0) reads 'start' before any op writes it"});
  b.program.op(0).inputs.clear();
  expect_says(refusal_of(b.program),
              {"(op 2) reads 'end' before any op writes byte 40 of it", "make of step 1 (op 1)"});
}

TEST(VerifyRank, RefusesAHoleBetweenWrites) {
  Builder b;
  const TensorId t = b.transient("t", 100), start = b.view("start", t, 0, 20), end = b.view("end", t, 50, 50);
  b.op("make", Stream::compute, {}, {end});
  b.op("make", Stream::compute, {}, {start});
  b.op("use", Stream::compute, {end}, {});
  b.op("use", Stream::compute, {t}, {});
  b.finish();
  expect_says(refusal_of(b.program), {"(op 3) reads 't' before any op writes byte 80 of it"});
}

TEST(VerifyRank, RefusesToLoseWhatNobodyHasRead) {
  Builder b;
  const TensorId flat = b.transient("flat", 300);
  const TensorId left = b.view("left", flat, 0, 100);
  b.op("fill", Stream::compute, {}, {flat});
  b.op("fill again", Stream::compute, {}, {left});
  b.op("read", Stream::compute, {flat}, {});
  b.finish();
  const std::string said = refusal_of(b.program);
  EXPECT_NE(said.find("fill again of step 1 (op 1) overwrites 'left' before any op has read"),
            std::string::npos)
      << said;
}

TEST(VerifyRank, RefusesOverlapBadEdgesAndBadViews) {
  Forward f;
  f.program.tensor(f.z).address = f.program.tensor(f.y).address;
  expect_says(refusal_of(f.program), {"'y' and 'z' share bytes", "linear of step 2 (op 2)"});
  Forward g;
  g.program.op(g.first).after.push_back(g.second);
  expect_says(refusal_of(g.program), {"(op 1) waits for op 2"});
  Forward h;
  h.program.tensor(h.weight).offset = 4000;
  expect_says(refusal_of(h.program), {"view 'weight' takes bytes [4000, 4512) of 'gathered.model.layers.0'"});
  Forward k;
  k.program.tensor(k.x).address = k.program.tensor(k.shard).address + 256;
  expect_says(refusal_of(k.program), {"persistent tensors 'shard' and 'x' overlap"});
  Forward l;
  l.program.tensor(l.later).address = l.program.plan[0].transient_bytes;
  expect_says(refusal_of(l.program), {"'later' ends at byte"});
  Forward m;
  m.program.tensor(m.y).address += 64;
  expect_says(refusal_of(m.program), {"'y' has address", "not a multiple of 256 bytes"});
}

TEST(Fuzz, WhatThePassesMakeIsAcceptedAndEachOfItsEdgesIsNeeded) {
  int edges = 0, reused = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    RandomProgram b(seed, 20 + static_cast<int>(seed % 100));
    link_dependencies(b.program);
    const Program linked = b.program;
    plan_lifetimes(b.program);
    plan_memory(b.program);
    ASSERT_EQ(refusal_of(b.program), "accepted") << "seed " << seed;
    for (std::size_t i = 0; i < b.program.ops.size(); ++i) {
      reused += b.program.ops[i].after != linked.ops[i].after;
      std::vector<OpId>& after = b.program.ops[i].after;
      for (std::size_t e = 0; e < after.size(); ++e) {
        const OpId removed = after[e];
        after.erase(after.begin() + static_cast<std::ptrdiff_t>(e));
        ++edges;
        expect_says(refusal_of(b.program), {"nothing orders the two"});
        after.insert(after.begin() + static_cast<std::ptrdiff_t>(e), removed);
      }
    }
  }
  EXPECT_GT(edges, 5000);
  EXPECT_GT(reused, 500);
}

TEST(Fuzz, OverlapOfLiveTensorsIsRefused) {
  int moved = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    RandomProgram b(seed, 80);
    b.finish();
    for (int attempt = 0; attempt < 200; ++attempt) {
      const int n = static_cast<int>(b.program.tensors.size());
      Tensor& one = b.program.tensor(b.below(n));
      const Tensor& two = b.program.tensor(b.below(n));
      if (&one == &two || one.first < 0 || two.first < 0 || one.first > two.last || two.first > one.last)
        continue;
      const std::int64_t kept = one.address;
      one.address = two.address;
      EXPECT_NE(refusal_of(b.program), "accepted") << one.name << " at the address of " << two.name;
      one.address = kept;
      ++moved;
    }
  }
  EXPECT_GT(moved, 500);
}

}  // namespace
}  // namespace ztrain::test::verify_test
