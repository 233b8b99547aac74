// Jobs with every knob of sharding and recomputation, compiled and proven without MPI; and what they promise
// in memory and bytes, by formula.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/hash.hpp"
#include "kernels/optimizer/record.hpp"
#include "program/passes/final_passes.hpp"
#include "tests/support/job_settings.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::program::job_knobs_test {
namespace {

using test::refusal;
using test::small_model;
using test::spec_on;

using test::knobs;

TEST(JobKnobs, EveryPairOfSettingsIsProven) {
  for (const bool tied : {false, true})
    for (const auto& [name, spec] : test::paired(knobs())) {
      EXPECT_EQ(refusal([&] { verify_job(small_model(3, tied), spec); }), "") << name;
    }
}

/// What each rank's steps do to a parameter, by the hash of its name that its pieces carry.
TEST(JobKnobs, NormsAndBiasesAreNotDecayed) {
  config::Model dims = test::small_dims(2, false);
  dims.attention_bias = dims.attention_output_bias = dims.qk_norm = true;
  const model::Graph graph = model::decoder(dims, {32, DType::bf16, model::Objective::loss});
  JobSpec spec = spec_on(1, 3, find_strategy("FULL_SHARD"));
  spec.optimizer.options.weight_decay = 0.25;
  std::map<std::uint64_t, std::set<double>> decays;
  for (int rank = 0; rank < 3; ++rank)
    for (const Op& op : compile(graph, spec, rank).train().ops) {
      if (op.type != OptimizerStep::op) continue;
      const auto step = record_of<OptimizerStep>(op.attributes);
      for (const SteppedPiece& piece : step.pieces)
        decays[static_cast<std::uint64_t>(piece.stream)].insert(
            step.weight_decays.at(static_cast<std::size_t>(piece.group)));
    }
  ASSERT_EQ(decays.size(), graph.parameters.size());
  for (const model::Parameter& p : graph.parameters) {
    const bool bare = p.name.find("norm") != std::string::npos || p.name.ends_with(".bias");
    EXPECT_EQ(decays[hash_text(p.name)], std::set<double>{bare ? 0 : 0.25}) << p.name;
  }
}

/// What the joint proof looks at is the same.
void expect_one_class(const Program& one, const Program& other) {
  ASSERT_EQ(one.ops.size(), other.ops.size());
  for (std::size_t i = 0; i < one.ops.size(); ++i) {
    const Op &a = one.ops[i], &b = other.ops[i];
    ASSERT_EQ(std::tuple(a.type, a.stream, a.comm.kind, a.comm.axes.bits(), a.after),
              std::tuple(b.type, b.stream, b.comm.kind, b.comm.axes.bits(), b.after))
        << describe(other, static_cast<OpId>(i)) << " of rank " << other.rank;
  }
}

TEST(JobKnobs, HundredsOfRanksAreProvenByOneClass) {
  for (const BackwardPrefetch when :
       {BackwardPrefetch::pre, BackwardPrefetch::post, BackwardPrefetch::none}) {
    JobSpec spec = spec_on(8, 64, find_strategy("FULL_SHARD"), 2);
    spec.mesh.inner_of(Axis::shard) = 8;
    spec.sharding.secondary_shards = true;
    spec.sharding.gather.backward_prefetch = when;
    spec.sharding.gather.max_units = 2;
    spec.sharding.reduce.bucket_elements = 40000;
    spec.units = {UnitGranularity::pattern, 0, {"model.layers.*.mlp"}, 100};
    spec.recompute.tags = {"norm", "swiglu"};
    const Job first = compile(small_model(4), spec, 0);
    for (const int rank : {1, 9, 63, 64, 511}) {
      const Job other = compile(small_model(4), spec, rank);
      for (const Program* p : first.programs.all()) expect_one_class(*p, other.programs.at(p->name));
    }
    std::vector<int> ranks(512);
    std::iota(ranks.begin(), ranks.end(), 0);
    for (const Program* p : first.programs.all())
      EXPECT_EQ(refusal([&] { verify_no_deadlock({p}, {ranks}); }), "") << p->name;
  }
}

/// The most gathered copies alive at once.
struct Peak {
  std::int64_t units = 0, elements = 0;
};
Peak gathered_peak(const Program& p) {
  std::vector<Peak> change(p.ops.size() + 1);
  for (const Tensor& t : p.tensors) {
    if (t.category != Category::gathered || t.base != no_tensor || t.first < 0) continue;
    const std::int64_t count = elements(t.shape);
    change[static_cast<std::size_t>(t.first)].units += 1;
    change[static_cast<std::size_t>(t.first)].elements += count;
    change[static_cast<std::size_t>(t.last) + 1].units -= 1;
    change[static_cast<std::size_t>(t.last) + 1].elements -= count;
  }
  Peak now, most;
  for (const Peak& c : change) {
    now = {now.units + c.units, now.elements + c.elements};
    most = {std::max(most.units, now.units), std::max(most.elements, now.elements)};
  }
  return most;
}

std::int64_t largest_unit(const Job& job) {
  std::int64_t most = 0;
  for (const FlatUnit& u : job.layout.units()) most = std::max(most, u.elements());
  return most;
}

constexpr BackwardPrefetch every_prefetch[] = {BackwardPrefetch::pre, BackwardPrefetch::post,
                                               BackwardPrefetch::none};

TEST(GatheredMemory, ALimitOfUnitsHolds) {
  for (const BackwardPrefetch when : every_prefetch)
    for (const int micros : {1, 3})
      for (const int limit : {1, 2, 3}) {
        JobSpec spec = spec_on(1, 4, find_strategy("FULL_SHARD"), micros);
        spec.sharding.gather = {5, when, limit, 0, 0, false};
        const Job job = compile(small_model(6), spec, 0);
        EXPECT_EQ(gathered_peak(job.train()).units, limit);
        EXPECT_EQ(gathered_peak(job.evaluate()).units, limit);
        const std::int64_t head_and_blocks = largest_unit(job) + (limit - 1) * job.layout.unit(1).elements();
        EXPECT_EQ(gathered_peak(job.train()).elements, head_and_blocks);
      }
}

TEST(GatheredMemory, ALimitOfElementsHoldsButForTheUnitInUse) {
  for (const BackwardPrefetch when : every_prefetch)
    for (const int micros : {1, 3})
      for (std::int64_t limit = 1000; limit < 200000; limit *= 2) {
        JobSpec spec = spec_on(1, 4, find_strategy("FULL_SHARD"), micros);
        spec.sharding.gather = {5, when, 0, limit, 0, false};
        const Job job = compile(small_model(6), spec, 0);
        EXPECT_LE(gathered_peak(job.train()).elements, std::max(limit, largest_unit(job)))
            << "limit " << limit << ", prefetch " << static_cast<int>(when) << ", " << micros << " micros";
      }
}

TEST(GatheredMemory, PreTakesOneUnitMoreThanPost) {
  const auto units = [](BackwardPrefetch when) {
    JobSpec spec = spec_on(1, 4, find_strategy("FULL_SHARD"), 1);
    spec.sharding.gather.forward_prefetch = 0;
    spec.sharding.gather.backward_prefetch = when;
    return gathered_peak(compile(small_model(4), spec, 0).train()).units;
  };
  EXPECT_EQ(units(BackwardPrefetch::none), 1);
  EXPECT_EQ(units(BackwardPrefetch::post), 1);
  EXPECT_EQ(units(BackwardPrefetch::pre), 2);
}

/// Bytes that this rank sends to gather a unit, gather by gather.
std::map<std::string, std::vector<std::int64_t>> gather_bytes(const Program& p) {
  std::map<std::string, std::vector<std::int64_t>> bytes;
  for (const Op& op : p.ops)
    if (op.type == "all_gather" && op.action.kind == ActionKind::gather && op.action.micro >= 0)
      bytes[op.name].push_back(op.comm.sent_bytes);
  return bytes;
}

TEST(GatheredBytes, SubGroupsExchangeAllButTheFirstAmongThemselves) {
  constexpr int shards = 8, inner = 2, width = 2;  // bf16
  JobSpec spec = spec_on(1, shards, find_strategy("FULL_SHARD"), 2);
  spec.mesh.inner_of(Axis::shard) = inner;
  spec.sharding.secondary_shards = true;
  for (const int rank : {0, 5}) {
    const Job job = compile(small_model(3), spec, rank);
    const auto bytes = gather_bytes(job.train());
    // Used in two forwards and two backwards; the head's copy lasts from one to the other, and the embedding
    // has no use in backward.
    const std::vector<std::size_t> times{2, 4, 4, 4, 2};
    ASSERT_EQ(bytes.size(), times.size());
    for (std::size_t u = 0; u < times.size(); ++u) {
      const std::int64_t elements = job.layout.unit(static_cast<int>(u)).elements();
      std::vector<std::int64_t> expected(times[u], (inner - 1) * elements / inner * width);
      expected.front() = (shards - 1) * elements / shards * width;
      EXPECT_EQ(bytes.at(job.train().units[u]), expected) << job.train().units[u];
    }
  }
}

TEST(GatheredBytes, WhatIsKeptWholeIsNeverGatheredButReduced) {
  JobSpec spec = spec_on(1, 4, find_strategy("FULL_SHARD"), 2);
  spec.units.persistence_threshold = 100;
  const Job job = compile(small_model(3), spec, 1);
  ASSERT_TRUE(job.graph.units.back().kept_whole || job.graph.units[1].kept_whole);
  const auto bytes = gather_bytes(job.train());
  int reductions = 0;
  for (const Op& op : job.train().ops)
    reductions += op.type == "reduce_scatter" && op.name == "parameters kept whole" ? 1 : 0;
  EXPECT_FALSE(bytes.contains("parameters kept whole"));
  EXPECT_EQ(bytes.size(), job.train().units.size() - 1);
  EXPECT_EQ(reductions, 2) << "one a micro-batch";
}

TEST(ReducedBytes, BucketsCutReductionsAndSendTheSame) {
  struct Counts {
    std::int64_t bytes = 0;
    std::map<std::string, int> reductions;
  };
  const auto count = [](std::int64_t bucket) {
    JobSpec spec = spec_on(1, 4, find_strategy("zero2"), 2);
    spec.sharding.reduce.bucket_elements = bucket;
    Counts c;
    for (const Op& op : compile(small_model(2), spec, 3).train().ops)
      if (op.type == "reduce_scatter") {
        c.bytes += op.comm.sent_bytes;
        ++c.reductions[op.name];
      }
    return c;
  };
  const Layout layout = compile(small_model(2), spec_on(1, 4, find_strategy("zero2")), 0).layout;
  const Counts whole = count(0);
  for (const std::int64_t bucket : {1, 1024, 5000, 100000}) {
    const Counts cut = count(bucket);
    EXPECT_EQ(cut.bytes, whole.bytes) << bucket;
    const std::int64_t at_once = std::max(quantum, bucket / 4);
    const std::int64_t block = ceil_div(layout.unit(1).shard_elements, at_once);
    EXPECT_EQ(cut.reductions.at("model.layers.0"), 2 * block) << bucket;
  }
  EXPECT_EQ(whole.reductions.at("model.layers.0"), 2);
}

TEST(ReducedBytes, ReductionsThatDoNotOverlapTakeLessMemory) {
  const auto bytes = [](bool overlap) {
    JobSpec spec = spec_on(1, 4, find_strategy("FULL_SHARD"), 1);
    spec.sharding.reduce.overlap = overlap;
    return compile(small_model(6), spec, 0).train().plan[0].live_bytes;
  };
  EXPECT_LT(bytes(false), bytes(true));
}

}  // namespace
}  // namespace ztrain::program::job_knobs_test
