// Strategies: what the pairs of mpi/matrix.cpp do not say. Sums of gradients, bounds on bytes and memory, no
// allocation within a step.

#include <gtest/gtest.h>

#include "kernels/launch/exec.hpp"
#include "tests/support/launch_allocations.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/node_index.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::strategies_test {
namespace {

using test::losses_of;
using test::session;
using test::TinyModel;

constexpr const char* all_strategies[] = {"NO_SHARD", "zero1", "zero2", "SHARD_GRAD_OP", "FULL_SHARD"};

class Strategies : public testing::Test {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }
  MeshShape shard_mesh() const {
    MeshShape mesh;
    mesh[Axis::shard] = session().size();
    return mesh;
  }
  /// A global batch that every tested number of ranks divides.
  TinyModel model(std::int64_t accumulation = 1) const {
    TinyModel m;
    m.global = session().size() * accumulation;
    return m;
  }
  program::JobSpec spec(const TinyModel& m, const char* strategy, DType type = DType::f32) const {
    return test::spec_for(m, shard_mesh(), strategy, test::precision_of(type));
  }
};

TEST_F(Strategies, AccumulationAgreesWithLargeMicroBatches) {
  TinyModel m;
  m.global = 12;  // 1, 2, 3 and 4 ranks divide it
  const auto here = losses_of(session(), m, spec(m, "FULL_SHARD"));
  TinyModel whole = m;
  whole.micro = m.global / session().size();
  const auto at_once = losses_of(session(), whole, spec(whole, "NO_SHARD"));
  ASSERT_EQ(here.size(), at_once.size());
  for (std::size_t i = 0; i < here.size(); ++i) EXPECT_NEAR(here[i], at_once[i], 1e-5 * std::abs(at_once[i]));
}

TEST_F(Strategies, ALayerThatIsUsedTwiceHasTheSumOfBothGradients) {
  const TinyModel m = model(2);
  std::vector<double> expected;
  for (const char* strategy : all_strategies)
    for (const bool every : {true, false}) {
      auto s = spec(m, strategy, DType::f64);
      s.graph_passes.emplace_back(test::use_projection_twice);
      s.sharding.reduce.every_micro = every;
      const auto losses = losses_of(session(), m, s, 2);
      if (expected.empty()) expected = losses;
      for (std::size_t i = 0; i < losses.size(); ++i)
        EXPECT_NEAR(losses[i], expected[i], 1e-11) << strategy << ", reduce every micro-batch: " << every;
    }
}

/// zero3 sends at most 3 P (N-1)/N, the others 2 P (N-1)/N, P the flat bytes with padding; and what one
/// rank says of its loss and norm to each other.
TEST_F(Strategies, SendsNoMoreThanTheFormula) {
  const TinyModel m = model();
  const int n = session().size();
  const std::int64_t partial = sizeof(StepPartial);
  for (const char* strategy : all_strategies) {
    job::Worker worker(session(), m.graph(DType::f32), spec(m, strategy));
    std::int64_t parameters = 0, planned = 0;
    for (const auto& unit : worker.job().layout.units()) parameters += unit.elements() * 4;
    for (const auto& op : worker.job().train().ops) planned += op.comm.sent_bytes;
    const std::int64_t factor = std::string(strategy) == "FULL_SHARD" ? 3 : 2;
    EXPECT_LE(planned, factor * parameters / n * (n - 1) + partial * (n - 1)) << strategy;
    EXPECT_GE(planned, parameters / n * (n - 1)) << strategy;
  }
}

/// In fp64, whose products are ours: what oneDNN allocates within its own calls is not counted.
TEST_F(Strategies, AStepAllocatesNothing) {
  if (test::test_gpu() > 0) GTEST_SKIP() << test::kokkos_allocates;
  const TinyModel m = model(2);
  for (const char* strategy : all_strategies) {
    const auto s = spec(m, strategy, DType::f64);
    job::Worker worker(session(), m.graph(DType::f64), s);
    test::train_losses(worker, m, s.micro_batches, 3, [&](int step, auto run) {
      const telemetry::AllocationCount count;
      run();
      EXPECT_EQ(count.calls(), 0) << strategy << " step " << step;
    });
  }
}

TEST_F(Strategies, ExtentIsWithinTwoPercentOfLiveBytes) {
  for (const char* strategy : all_strategies) {
    const TinyModel m = model(2);
    job::Worker worker(session(), m.graph(DType::f32), spec(m, strategy));
    const auto& plan = worker.job().train().plan[0];
    EXPECT_LE(static_cast<double>(plan.transient_bytes), 1.02 * static_cast<double>(plan.live_bytes))
        << strategy;
  }
}

}  // namespace
}  // namespace ztrain::strategies_test
