// What steps over NCCL need that order alone does not show. Ranks wait for each other in two more ways than
// the proof of no deadlock knows:
//
// * NCCL connects two ranks when they first exchange a message, and a group at its first collective: the host
//   then waits for those of the others. Receives of pipelines are begun early, so a step whose pairs are not
//   connected hangs.
// * CUDA gives streams to connections, and those of one connection wait for each other.

#include <gtest/gtest.h>

#include "kernels/launch/exec.hpp"
#include "tests/late_cuda/late_device.hpp"
#include "tests/late_cuda/late_nccl.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::connections_test {
namespace {

using test::session;

class Connections : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }

  /// Of one step, and its gradient norm. connections: that streams share; 0: none do.
  std::vector<double> losses(int micro_batches, int receive_ahead, int connections = 0) {
    test::TinyModel model;
    model.dims.num_hidden_layers = 8;
    model.global = micro_batches;
    program::JobSpec spec = test::spec_of_ranks(model, "FULL_SHARD", session().size());
    spec.mesh[Axis::pipeline] = session().size();
    spec.mesh[Axis::shard] = 1;
    spec.micro_batches = micro_batches;
    spec.schedule = program::find_schedule(GetParam());
    spec.pipeline.receive_ahead = receive_ahead;
    job::WorkerOptions options;
    options.device.communicator = "nccl";
    auto device = test::make_late_device({.seed = 7, .runs_when_idle = true, .connections = connections},
                                         session().local_rank());
    auto backend = runtime::make_backend(session(), device->cuda(), options.device);
    job::Worker worker(session(), model.graph(DType::bf16), spec, options,
                       {std::move(device), std::move(backend)});
    return test::train_losses(worker, model, micro_batches, 1, [](int, auto run) { run(); });
  }
};

TEST_P(Connections, AreThereBeforeTheFirstStep) {
  late_nccl::configure({.patience = 20});
  const bool two = session().size() == 2;
  for (const int micro_batches : two ? std::vector{1, 8} : std::vector{2}) {
    const std::vector<double> expected = losses(micro_batches, 0);
    for (const int ahead : two ? std::vector{1, 3} : std::vector{2})
      EXPECT_EQ(losses(micro_batches, ahead), expected)
          << micro_batches << " micro-batches, receives begun " << ahead << " turns early";
  }
  EXPECT_EQ(late_nccl::failure(), "");
}

TEST_P(Connections, OfStreamsAreEnough) {
  late_nccl::configure({.patience = 20});
  EXPECT_EQ(losses(4, 2, late_cuda::connections()), losses(4, 0));
  EXPECT_EQ(late_nccl::failure(), "");
}

INSTANTIATE_TEST_SUITE_P(Schedules, Connections,
                         testing::Values("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "v-half",
                                         "v-min", "dualpipe-v"));

}  // namespace
}  // namespace ztrain::connections_test
