// Rates of machines: files that give them, and what follows from them.

#include "plan/rates/rates.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "plan/cost.hpp"
#include "plan/job_time.hpp"
#include "plan/published.hpp"
#include "plan/rates/op_time.hpp"
#include "plan/save_interval.hpp"
#include "program/ops/emit.hpp"
#include "tests/support/plan_decks.hpp"
#include "tests/support/programs.hpp"

namespace ztrain::plan::rates_test {
namespace {

using program::TensorId;
using test::Builder;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("rates-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  std::string refused(const std::string& text) const {
    try {
      read_rates(write("refused.toml", text));
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing was refused";
  }
  std::filesystem::path folder_;
};

TEST_F(Files, TakeWhatTheyDoNotGiveFromTheirBase) {
  write("base.toml", "base = \"h100-80gb\"\n[products]\nfixed = 7\n[cluster]\nranks_per_node = 4\n");
  const Rates own = read_rates(write("own.toml", "base = \"base.toml\"\n[node]\nshare = 0.5\nhop = 2\n"));
  const Rates preset = read_rates("h100-80gb");
  EXPECT_DOUBLE_EQ(own.node.share, 0.5);
  EXPECT_DOUBLE_EQ(own.node.hop, 2e-6) << "microseconds";
  EXPECT_DOUBLE_EQ(own.products.fixed, 7e-6);
  EXPECT_DOUBLE_EQ(own.products.efficiency, preset.products.efficiency);
  EXPECT_DOUBLE_EQ(own.network.hop, preset.network.hop);
  EXPECT_EQ(own.cluster, (std::vector<std::string>{"cluster.preset=h100-80gb", "cluster.ranks_per_node=4"}));
  EXPECT_EQ(own.sources.size(), 3U);
  EXPECT_EQ(own.sources.back(), "h100-80gb");
}

TEST_F(Files, SayWhatIsWrongWithThem) {
  EXPECT_NE(
      refused("[products]\nefficency = 0.7\n").find("[products] has no key efficency: legal are efficiency,"),
      std::string::npos);
  EXPECT_NE(
      refused("[product]\nefficiency = 0.7\n").find("there is no section [product]: legal are cluster,"),
      std::string::npos);
  EXPECT_NE(refused("[node]\nshare = 1.5\n").find("node.share is to be a number from 1e-06 to 1"),
            std::string::npos);
  EXPECT_NE(refused("[node]\nshare = \"half\"\n").find("node.share is to be a number"), std::string::npos);
  EXPECT_NE(refused("base = \"refused.toml\"\n").find("files build upon each other"), std::string::npos);
  EXPECT_NE(refused("").find("the file is empty"), std::string::npos);
  EXPECT_NE(refused("base = \"absent.toml\"\n").find("absent.toml"), std::string::npos);
  EXPECT_NE(refused("[[product]]\ndtype = \"fp32\"\nrows = 4\n").find("product has no key"),
            std::string::npos);
  EXPECT_NE(refused("[kernel.add]\nspeed = 1\n").find("kernel.add has no key speed"), std::string::npos);
}

TEST_F(Files, OfPresetsAreAllRead) {
  for (const std::string& name : machine_presets()) EXPECT_FALSE(read_rates(name).cluster.empty()) << name;
}

TEST_F(Files, GiveMeasuredKernelsBeforeAllElse) {
  Machine m;
  m.rates = read_rates(write("measured.toml", "[kernel.add]\nfixed = 3\nbandwidth = 0.001\n"));
  Builder b;
  const TensorId x = b.transient("x", 100), y = b.transient("y", 100);
  const auto add = b.op("add", program::Stream::compute, {x}, {y});
  EXPECT_DOUBLE_EQ(duration_of(b.program, b.program.op(add), m), 3e-6 + 800 / 1e6);
}

TEST(Tiles, ThatDoNotFillAWaveTakeAWholeOne) {
  const ProductRates rates{.tile_rows = 128, .tile_columns = 256, .multiprocessors = 132};
  EXPECT_DOUBLE_EQ(tile_use({1, 128 * 132, 256, 64}, rates), 1) << "one full wave";
  const double one_more = tile_use({1, 128 * 133, 256, 64}, rates);
  EXPECT_LT(one_more, 0.95) << "a second wave of one tile";
  EXPECT_GT(one_more, 0.5) << "smaller tiles waste less of it";
  EXPECT_LT(tile_use({1, 128, 256, 64}, rates), 0.1) << "few multiprocessors have work";
  EXPECT_NEAR(tile_use({8, 128 * 132, 256, 64}, rates), 1, 1e-12)
      << "products of several groups fill waves together";
  EXPECT_DOUBLE_EQ(tile_use({1, 1, 1, 1}, {}), 1)
      << "tiles do not count where the multiprocessors are not known";
}

TEST(MeasuredProducts, AreMetWhereTheyWereMeasured) {
  const std::vector<ProductPoint> points{{64, 64, 64, 1e9}, {1024, 1024, 1024, 4e9}};
  EXPECT_NEAR(measured_rate(points, {1, 64, 64, 64}), 1e9, 1e6);
  EXPECT_NEAR(measured_rate(points, {1, 1024, 1024, 1024}), 4e9, 4e6);
  EXPECT_NEAR(measured_rate(points, {1, 256, 256, 256}), 2e9, 1e6) << "half way by ratios";
  EXPECT_EQ(measured_rate({}, {1, 64, 64, 64}), 0);
}

TEST(Slowest, OfManyIsTheMeanOfTheLargest) {
  EXPECT_EQ(largest_of(1), 0);
  EXPECT_NEAR(largest_of(2), 0.564, 0.03) << "1 / sqrt(pi)";
  EXPECT_NEAR(largest_of(100), 2.508, 0.02);
  EXPECT_NEAR(largest_of(10000), 3.852, 0.02);
}

/// One group over ever more nodes: a ring's latency grows with its members, and in the end bounds it.
TEST(Collectives, WaitForLatencyInLargeGroups) {
  Machine m;
  m.rates = read_rates("h100-80gb");
  m.latency = 0;
  double last = 0;
  for (const int nodes : {1, 4, 16, 64, 256, 2048}) {
    Builder b;
    b.program.mesh[Axis::shard] = 8 * nodes;
    const std::int64_t shard = 214'000'000 / 8 / nodes;  // a block of 8B, in bf16
    const TensorId own = b.transient("own", shard), whole = b.transient("whole", shard * 8 * nodes);
    b.program.tensor(own).dtype = b.program.tensor(whole).dtype = DType::bf16;
    program::emit_all_gather(b.program, "gather", own, whole, Axis::shard, {});
    const program::Op& op = b.program.ops.back();
    const LinkSeconds s = collective_seconds(b.program, op, {8, 8 * nodes}, m);
    EXPECT_GT(s.all(), last) << nodes;
    last = s.all();
    const double ring = (nodes * 8 - nodes) * 3.4e-6 + (nodes - 1) * 14e-6;
    EXPECT_NEAR(s.latency, nodes == 1 ? 8.4e-6 + 7 * 3.4e-6 : ring, 1e-9) << nodes;
  }
  EXPECT_GT(last, 5 * 0.0107) << "most of it is latency at 16,384 ranks: 8 nodes take 0.0107 s";
}

/// Rows of tokens for experts travel in buffers that have room for more.
TEST(FilledRows, AreThoseThatEvenLoadsFill) {
  Builder b;
  const TensorId rows = b.program.add({.name = "rows", .dtype = DType::f32, .shape = {80, 4}});
  const TensorId other = b.program.add({.name = "other", .dtype = DType::f32, .shape = {10, 4}});
  const auto id = b.op("grouped_linear", program::Stream::compute, {rows}, {other});
  b.program.op(id).attributes.set("even_rows", 20);
  const FilledRows filled = filled_rows(b.program);
  EXPECT_EQ(filled, (FilledRows{{80, 0.25}}));
  const auto move = b.op("add", program::Stream::compute, {rows}, {other});
  EXPECT_DOUBLE_EQ(bytes_touched(b.program, b.program.op(move), filled)[0], 80 * 16 * 0.25 + 160);
  EXPECT_DOUBLE_EQ(bytes_touched(b.program, b.program.op(move))[0], 80 * 16 + 160);
}

TEST(Simulate, ProductsAreSlowerWhileACollectiveRuns) {
  Builder b;
  b.program.mesh[Axis::shard] = 4;
  Machine m;
  m.peak_flops = 1, m.compute_efficiency = 1, m.intra_node_bandwidth = 10, m.latency = 0;
  m.rates.beside_collectives = 0.5;
  const auto gather =
      b.communicate(program::CommKind::all_gather, Axis::shard, program::Stream::gather, {}, {});
  b.program.op(gather).comm.sent_bytes = 100;
  const auto product = b.op("linear", program::Stream::compute, {}, {}, {program::ActionKind::forward, 0, 0});
  b.program.op(product).flops = 8;
  EXPECT_DOUBLE_EQ(simulate(b.program, m).seconds, 13)
      << "5 of 8 s of work in the 10 s of the gather, then 3 s";
  m.rates.beside_collectives = 1;
  EXPECT_DOUBLE_EQ(simulate(b.program, m).seconds, 10);
}

using test::Decks;

TEST_F(Decks, AStepIsThatOfTheSlowestRank) {
  const Question even = question(4);
  Question uneven = even;
  const std::filesystem::path file = folder / "uneven.toml";
  std::ofstream(file) << "base = \"h100-80gb\"\n[ranks]\njitter = 0\n";
  uneven.limits.machine = file.string();
  const Cost one = cost_of(uneven);
  std::ofstream(file) << "base = \"h100-80gb\"\n[ranks]\njitter = 0.1\n";
  const Cost other = cost_of(uneven);
  EXPECT_DOUBLE_EQ(one.slowest, 0);
  EXPECT_NEAR(other.step.seconds, one.step.seconds * (1 + 0.1 * largest_of(4)), 1e-12);
  EXPECT_NEAR(other.step.exposed - one.step.exposed, other.slowest, 1e-12);
}

TEST(PublishedSpeeds, AreThoseOfTheNearestJob) {
  const auto nearest = [](const char* preset, std::int64_t parameters, const char* fp8) {
    Cost c;
    c.ranks = 8, c.parameters = parameters;
    c.deck.cluster.preset = preset;
    c.deck.precision.fp8 = fp8;
    c.deck.data.sequence = 8192;
    return nearest_published(c);
  };
  const auto near = nearest("h100-80gb", 8'030'000'000, "none");
  ASSERT_TRUE(near.has_value());
  EXPECT_EQ(near->source, "torchtitan 8B, 8 GPUs, eager") << "the first of those that are equally near";
  EXPECT_EQ(near->tokens, 5762);
  EXPECT_EQ(nearest("h100-80gb", 8'030'000'000, "tensorwise")->tokens, 8532) << "of products in 8 bits";
  EXPECT_FALSE(nearest("h100-pcie-80gb", 8'030'000'000, "none").has_value()) << "another device";
  EXPECT_FALSE(nearest("h100-80gb", 50'000, "none").has_value()) << "no model of such a size";
}

TEST(SaveIntervals, LoseLeast) {
  Cost c;
  c.ranks = 64, c.checkpoint_bytes = 800e9;
  c.machine.ranks_per_node = 8;
  c.machine.rates.nodes = {.between_failures = 8e6, .write = 2e9};
  const SaveInterval s = save_interval(c);
  EXPECT_DOUBLE_EQ(s.save, 50) << "8 nodes write 16 GB/s";
  EXPECT_DOUBLE_EQ(s.failures, 1e6);
  EXPECT_DOUBLE_EQ(s.best, 10'000);
  EXPECT_DOUBLE_EQ(s.lost, 0.01);
}

TEST(JobTimes, AddEvaluationsAndSaves) {
  Cost c;
  c.ranks = 64, c.checkpoint_bytes = 800e9;
  c.machine.ranks_per_node = 8;
  c.machine.rates.nodes = {.write = 2e9, .watts = 1000};
  c.deck.run.steps = 100;
  c.deck.batch.global = 128, c.deck.batch.micro = 1;
  c.deck.mesh.shard = 64, c.deck.data.sequence = 16;
  c.step.seconds = 10;
  auto& computing = c.step.busy[at(program::Stream::compute)];
  computing[at(program::ActionKind::forward)] = 2, computing[at(program::ActionKind::backward)] = 6;
  c.deck.evaluation.interval = 10, c.deck.evaluation.batches = 4;
  c.deck.checkpoint.interval = 30;
  JobTime t = job_time(c);
  EXPECT_DOUBLE_EQ(t.steps, 1000);
  EXPECT_DOUBLE_EQ(t.evaluations, 10 * 4 * 1.25) << "of two micro-batches a step a quarter is forward";
  EXPECT_DOUBLE_EQ(t.saves, 4 * 50) << "at 30, 60, 90 and the end";
  EXPECT_DOUBLE_EQ(t.energy, 8 * 1000 * 1250.0) << "8 nodes";
  c.deck.checkpoint.async = true;
  EXPECT_DOUBLE_EQ(job_time(c).saves, 50) << "only the last one is waited for";
  c.step.seconds = 1;
  EXPECT_DOUBLE_EQ(job_time(c).saves, 3 * (50 - 30) + 50) << "30 steps are shorter than a save";
  c.deck.checkpoint.interval = 5, c.deck.checkpoint.keep_best = 1;
  EXPECT_DOUBLE_EQ(job_time(c).evaluations, 20 * 4 * 0.125) << "at each checkpoint";
  c.deck.checkpoint.interval = -1;
  EXPECT_DOUBLE_EQ(job_time(c).saves, 0);
}

/// The memory of a sum over replicas is not taken for the next backward, which would wait for a slow network.
TEST_F(Decks, SumsOverReplicasRunBesideTheNextBackward) {
  const Cost cost = cost_of(question(
      4, 0,
      {"mesh.replicate=2", "mesh.shard=2", "sharding.strategy=HYBRID_SHARD", "cluster.ranks_per_node=2",
       "cluster.latency=0", "cluster.peak_tflops=0.01", "cluster.inter_node_bandwidth=0.02"}));
  EXPECT_LT(cost.step.seconds, 1.02 * cost.seconds_without_reuse);
}

}  // namespace
}  // namespace ztrain::plan::rates_test
