// Training on the product's CUDA device, with its communicators and graphs, on a CUDA that runs everything as
// late as it may: the same losses as on the CPU device, bit for bit.

#include <gtest/gtest.h>

#include "kernels/backend.hpp"
#include "tests/late_cuda/late_device.hpp"
#include "tests/late_cuda/late_nccl.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::training_test {
namespace {

using test::session;
using test::TinyModel;

constexpr int steps = 3;

program::JobSpec spec_of(const TinyModel& m, const char* strategy) {
  MeshShape mesh;
  mesh[Axis::shard] = session().size();
  program::JobSpec spec =
      test::spec_for(m, mesh, strategy, {DType::bf16, DType::f32, DType::f32, DType::f32, DType::f32});
  spec.recompute.every = 2;
  return spec;
}

/// Of some steps, and of an evaluation after them.
std::vector<double> losses_of(train::Worker& worker, const TinyModel& m) {
  const int micro_batches = static_cast<int>(m.global / (m.micro * worker.data_ranks()));
  auto losses = test::train_losses(worker, m, micro_batches, steps, [](int, auto run) { run(); });
  worker.evaluate_batch();
  losses.push_back(worker.partials()[0].loss_sum);
  return losses;
}

class TrainingOnLateCuda : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }

  std::vector<double> on_the_cpu() {
    train::Worker worker(session(), model.graph(DType::bf16), spec_of(model, GetParam()), {},
                         runtime::make_host_device());
    return losses_of(worker, model);
  }
  std::vector<double> on_cuda(std::uint64_t seed, const train::WorkerOptions& options) {
    const late_cuda::Options late{.seed = 100 * seed + static_cast<std::uint64_t>(session().rank()),
                                  .runs_when_idle = session().size() > 1};
    auto device = test::make_late_device(late, session().local_rank());
    auto backend = runtime::make_backend(session(), device->cuda(), options.device);
    train::Worker worker(session(), model.graph(DType::bf16), spec_of(model, GetParam()), options,
                         {std::move(device), std::move(backend)});
    return losses_of(worker, model);
  }
  /// communicator: as the deck has it.
  void expect_same(const char* communicator, const std::vector<const char*>& graphs) {
    const auto expected = on_the_cpu();
    std::uint64_t seed = 1;
    for (const char* way : graphs)
      for (const bool poison : {false, true}) {
        train::WorkerOptions options;
        options.poison = poison;
        options.device.communicator = communicator;
        options.device.cuda_graphs = way;
        EXPECT_EQ(on_cuda(++seed, options), expected) << "graphs " << way << ", poison " << poison;
      }
  }

  TinyModel model;
};

TEST_P(TrainingOnLateCuda, SameLossesThroughHostMemory) {
  expect_same("mpi", {"none", "compute"});
}

// NCCL's sums of fp32 are formed in rank order here.
TEST_P(TrainingOnLateCuda, SameLossesOverNcclAlsoAsOneGraph) {
  expect_same("nccl", {"none", "step"});
  EXPECT_EQ(late_nccl::communicators(), 0) << "not given back";
  EXPECT_EQ(late_nccl::failure(), "");
}

INSTANTIATE_TEST_SUITE_P(Strategies, TrainingOnLateCuda,
                         testing::Values("NO_SHARD", "zero1", "zero2", "SHARD_GRAD_OP", "FULL_SHARD"));

}  // namespace
}  // namespace ztrain::training_test
