// Steps whose middle micro-batches are compiled once compute what those do that are compiled one by one:
// losses and norms bit for bit, on devices that run work at once and later.

#include <gtest/gtest.h>

#include "kernels/launch/exec.hpp"
#include "tests/support/as_planned.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::repeat_test {
namespace {

using test::session;
using test::TinyModel;

constexpr int micro_batches = 8, steps = 2;

/// Each step sends what was planned.
std::vector<double> losses_of(job::Worker& worker, const TinyModel& m, int micros) {
  return test::train_losses(worker, m, micros, steps,
                            [&](int, auto run) { test::expect_planned_bytes(worker, run); });
}

class Repeat : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }

  static TinyModel model() {
    TinyModel m;
    m.global = micro_batches * session().size();
    return m;
  }

  static program::JobSpec spec(const TinyModel& m, bool every_micro_batch) {
    MeshShape mesh;
    mesh[Axis::shard] = session().size();
    if (session().size() == 4 && std::string_view(GetParam()) == "HYBRID_SHARD")
      mesh[Axis::replicate] = mesh[Axis::shard] = 2;
    program::JobSpec s =
        test::spec_for(m, mesh, GetParam(), {DType::bf16, DType::f32, DType::f32, DType::f32, DType::f32});
    s.recompute.tags = {"norm", "swiglu"};
    s.every_micro_batch = every_micro_batch;
    return s;
  }

  static std::vector<double> losses(const TinyModel& m, const program::JobSpec& s,
                                    const job::WorkerOptions& options = {},
                                    std::unique_ptr<runtime::Device> device = nullptr) {
    job::Worker worker(session(), m.graph(DType::bf16), s, options, std::move(device));
    EXPECT_EQ(worker.job().train().repeat.times, s.every_micro_batch ? 1 : micro_batches - 4);
    return losses_of(worker, m, s.micro_batches);
  }

  /// The GPU of a build for them, whose kernels do not reach the deferred device's memory.
  static std::unique_ptr<runtime::Device> deferred(int seed) {
    if (runtime::built_for_gpus()) return runtime::make_device(session().local_rank());
    return runtime::make_deferred_device(static_cast<std::uint64_t>(100 * seed + session().rank()));
  }
};

TEST_P(Repeat, SameLossesAndBytes) {
  TinyModel m = model();
  const auto expected = losses(m, spec(m, true));
  EXPECT_EQ(losses(m, spec(m, false)), expected);
  EXPECT_EQ(losses(m, spec(m, false), {.poison = true}), expected) << "poisoned";
  for (const bool every_micro : {false, true}) {
    program::JobSpec one_by_one = spec(m, true), repeated = spec(m, false);
    one_by_one.sharding.reduce.every_micro = repeated.sharding.reduce.every_micro = every_micro;
    EXPECT_EQ(losses(m, repeated), losses(m, one_by_one)) << "every_micro " << every_micro;
  }
}

/// Masks of dropout are drawn by the token of the step, which the repeated ops count on.
TEST_P(Repeat, SameLossesWithDropout) {
  TinyModel m = model();
  m.lora = {4, 16, 0.25, {"*_proj"}};
  m.adapter_std = 0.05;
  const auto expected = losses(m, spec(m, true));
  EXPECT_EQ(losses(m, spec(m, false)), expected);
  m.lora.dropout = 0;
  EXPECT_NE(losses(m, spec(m, false)), expected) << "a mask is drawn";
}

TEST_P(Repeat, SameLossesWhereWorkRunsLater) {
  const TinyModel m = model();
  const auto expected = losses(m, spec(m, true));
  for (int seed = 0; seed < 2; ++seed) EXPECT_EQ(losses(m, spec(m, false), {}, deferred(seed)), expected);
  job::WorkerOptions options;
  options.poison = true;
  EXPECT_EQ(losses(m, spec(m, false), options, deferred(2)), expected) << "poisoned";
  options.device.cuda_graphs = "compute";
  EXPECT_EQ(losses(m, spec(m, false), options, deferred(3)), expected) << "graphs";
}

INSTANTIATE_TEST_SUITE_P(Strategies, Repeat, testing::Values("zero1", "FULL_SHARD", "HYBRID_SHARD"));

/// Stages, all ranks one behind the other.
class RepeatStages : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }

  static std::vector<double> losses(const char* strategy, bool every_micro_batch,
                                    std::unique_ptr<runtime::Device> device = nullptr) {
    const int ranks = session().size(), stages = std::string_view(GetParam()) == "1f1b" ? ranks : 2;
    MeshShape mesh;
    mesh[Axis::pipeline] = stages, mesh[Axis::shard] = ranks / stages;
    TinyModel m;
    m.dims.num_hidden_layers = 4;
    m.global = 22 * mesh[Axis::shard];
    m.lora = {4, 16, 0.25, {"*_proj"}};
    m.adapter_std = 0.05;
    program::JobSpec s =
        test::spec_for(m, mesh, strategy, {DType::bf16, DType::f32, DType::f32, DType::f32, DType::f32});
    s.schedule = program::find_schedule(GetParam());
    s.every_micro_batch = every_micro_batch;
    s.repeat_slack = 1;
    job::WorkerOptions options;
    options.poison = true;
    job::Worker worker(session(), m.graph(DType::bf16), s, options, std::move(device));
    EXPECT_EQ(worker.job().train().repeat.times > 1, !every_micro_batch);
    return losses_of(worker, m, s.micro_batches);
  }
};

TEST_P(RepeatStages, SameLossesAndBytes) {
  if (session().size() == 1) GTEST_SKIP() << "for several ranks";
  for (const char* strategy : {"FULL_SHARD", "zero1"})
    EXPECT_EQ(losses(strategy, false), losses(strategy, true)) << strategy;
}

TEST_P(RepeatStages, SameLossesWhereWorkRunsLater) {
  if (session().size() == 1) GTEST_SKIP() << "for several ranks";
  if (runtime::built_for_gpus()) GTEST_SKIP() << "kernels do not reach the deferred device's memory";
  const auto expected = losses("zero2", true);
  for (int seed = 0; seed < 2; ++seed) {
    const auto seed_of_rank = static_cast<std::uint64_t>(100 * seed + session().rank());
    EXPECT_EQ(losses("zero2", false, runtime::make_deferred_device(seed_of_rank)), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, RepeatStages,
                         testing::Values("1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v"));

}  // namespace
}  // namespace ztrain::repeat_test
