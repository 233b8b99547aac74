// On a device that runs work as late as it may, with its memory closed to the host, in orders drawn from a
// seed: what the host tier and NVMe hold is not on the device, and events alone say when it is there. No bit
// of a loss or a norm changes.

#include <gtest/gtest.h>

#include <filesystem>

#include "kernels/launch/exec.hpp"
#include "tests/support/as_planned.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::offload_test {
namespace {

using program::StepOn;
using program::Tier;
using test::session;
using test::TinyModel;

std::vector<double> losses_late(const TinyModel& m, const program::JobSpec& spec, int seed) {
  job::WorkerOptions options{.poison = true};
  options.nvme.paths = {std::filesystem::temp_directory_path()};
  options.nvme.checksums = true;
  job::Worker worker(session(), m.graph(spec.precision.parameters), spec, options,
                     runtime::make_deferred_device(static_cast<std::uint64_t>(seed)));
  std::vector<double> losses =
      test::train_losses(worker, m, spec.micro_batches, 2, [](int, auto run) { run(); });
  test::expect_planned_tiers(worker);
  const engine::JobMemory& memory = worker.memory();
  std::int64_t in_memory = 0;
  for (const Tier tier : {Tier::device, Tier::host})
    in_memory += memory.persistent_bytes(tier) + memory.transient_bytes(tier);
  EXPECT_EQ(memory.total_bytes(), in_memory) << "NVMe is no memory";
  return losses;
}

TEST(Offload, ChangesNoBitOnALateDevice) {
  if (runtime::built_for_gpus()) GTEST_SKIP() << "kernels of a build for GPUs do not reach such memory";
  kernels::initialize_backend();
  TinyModel m;
  m.dims.num_hidden_layers = 3;
  m.micro = 2;
  m.global = m.micro * 2 * session().size();
  MeshShape mesh;
  mesh[Axis::shard] = session().size();
  program::JobSpec spec =
      test::spec_for(m, mesh, "FULL_SHARD", {DType::bf16, DType::f32, DType::f32, DType::f32, DType::f32});
  const std::vector<double> expected = test::losses_of(session(), m, spec, 2);
  for (const Tier tier : {Tier::host, Tier::nvme})
    for (const StepOn step : {StepOn::host, StepOn::device})
      for (int seed = 0; seed < 2; ++seed) {
        const program::Home away{tier, 1};
        spec.offload = {away, away, away, away, away, step};
        SCOPED_TRACE(testing::Message() << name_of(tier) << ", step on " << static_cast<int>(step));
        EXPECT_EQ(losses_late(m, spec, seed), expected);
      }
}

}  // namespace
}  // namespace ztrain::offload_test
