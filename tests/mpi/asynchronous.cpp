// Training on a device that runs work as late as it may, in random legal orders, with its memory closed to
// the host: the same losses, bit for bit. Kernels of a build for GPUs do not reach such memory: there it is
// the GPU itself, against itself without graphs and poison.

#include <gtest/gtest.h>

#include "kernels/launch/exec.hpp"
#include "plan/memory.hpp"
#include "program/passes/place.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/stuck_device.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::asynchronous_test {
namespace {

using test::session;
using test::TinyModel;

constexpr int steps = 3;

program::JobSpec spec_of(const TinyModel& m, const char* strategy) {
  return test::spec_of_ranks(m, strategy, session().size());
}

std::vector<double> losses_on(std::unique_ptr<runtime::Device> device, const TinyModel& m,
                              const program::JobSpec& spec, const job::WorkerOptions& options = {}) {
  job::Worker worker(session(), m.graph(DType::bf16), spec, options, std::move(device));
  auto losses = test::train_losses(worker, m, spec.micro_batches, steps, [](int, auto run) { run(); });
  worker.evaluate_batch();
  losses.push_back(worker.partials()[0].loss_sum);
  return losses;
}

std::unique_ptr<runtime::Device> deferred(int seed) {
  return runtime::make_deferred_device(static_cast<std::uint64_t>(100 * seed + session().rank()));
}

std::unique_ptr<runtime::Device> gpu() {
  return runtime::make_device(session().local_rank());
}

/// One on which kernels run.
std::unique_ptr<runtime::Device> late(int seed) {
  return runtime::built_for_gpus() ? gpu() : deferred(seed);
}
std::unique_ptr<runtime::Device> plain() {
  return runtime::built_for_gpus() ? gpu() : runtime::make_host_device();
}

class Asynchronous : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }
};

TEST_P(Asynchronous, SameLosses) {
  const TinyModel m;
  const auto expected = losses_on(plain(), m, spec_of(m, GetParam()));
  for (int seed = 0; seed < 2; ++seed)
    EXPECT_EQ(losses_on(late(seed), m, spec_of(m, GetParam())), expected) << seed;
}

TEST_P(Asynchronous, SameLossesWithPoisonAndGraphs) {
  const TinyModel m;
  const auto expected = losses_on(plain(), m, spec_of(m, GetParam()));
  job::WorkerOptions options;
  options.poison = true;
  EXPECT_EQ(losses_on(late(7), m, spec_of(m, GetParam()), options), expected);
  options.device.cuda_graphs = "compute";
  EXPECT_EQ(losses_on(late(8), m, spec_of(m, GetParam()), options), expected);
  if (session().size() > 1) return;  // the host drives collectives here
  options.device.cuda_graphs = "step";
  EXPECT_EQ(losses_on(late(9), m, spec_of(m, GetParam()), options), expected);
}

/// What is refused for lack of host memory counts what communication then takes.
TEST_P(Asynchronous, TheStagingMemoryIsAsPlanned) {
  const TinyModel m;
  const program::JobSpec spec = spec_of(m, GetParam());
  job::Worker worker(session(), m.graph(DType::bf16), spec, {}, deferred(1));
  const program::Job& job = worker.job();
  const std::int64_t planned = plan::staging_bytes(job.programs.all());
  EXPECT_EQ(worker.mesh().staging_bytes(), planned);
  EXPECT_EQ(planned > 0, session().size() > 1);
  const auto backend = runtime::make_host_backend(worker.device());
  EXPECT_TRUE(backend->staged());
  EXPECT_EQ(job::pinned_bytes(worker.device(), *backend, {&job.train()}, {1, 256, 257}),
            256 + 256 + 512 + plan::staging_bytes({&job.train()}));
  const auto host = runtime::make_host_device();
  const auto direct = runtime::make_host_backend(*host);
  EXPECT_EQ(job::pinned_bytes(*host, *direct, {&job.train()}, {1, 256, 257}), 0);
}

/// What is exchanged for heads, or goes round, beside other work.
TEST(AsynchronousStep, GivesTheLossesOfPartsOfSequences) {
  kernels::initialize_backend();
  TinyModel m;
  m.dims.num_key_value_heads = 4;
  program::JobSpec spec = spec_of(m, "FULL_SHARD");
  spec.micro_batches *= session().size();
  spec.mesh = {};
  spec.mesh[Axis::context] = session().size();
  for (const auto method : {model::ContextMethod::heads, model::ContextMethod::ring}) {
    spec.context = method;
    m.token_order = program::token_order(spec.mesh, method);
    job::Worker worker(session(), m.graph(DType::bf16), spec, {}, deferred(1));
    EXPECT_EQ(worker.mesh().staging_bytes(), plan::staging_bytes(worker.job().programs.all()));
    job::WorkerOptions options;
    options.poison = true;
    EXPECT_EQ(losses_on(late(11), m, spec, options), losses_on(plain(), m, spec));
  }
}

/// Bound as for a GPU, as far as a CPU can: what would be printed at the start.
TEST(AsynchronousStep, SaysHowAttentionIsDoneOnGpus) {
  if (runtime::built_for_gpus()) GTEST_SKIP() << "what is said on a GPU depends on it and its libraries";
  kernels::initialize_backend();
  const TinyModel m;
  program::JobSpec spec = spec_of(m, "NO_SHARD");
  const job::Worker on_cpu(session(), m.graph(DType::bf16), spec, {}, runtime::make_host_device());
  ASSERT_EQ(on_cpu.notes().size(), 1u);
  EXPECT_EQ(on_cpu.notes()[0].what, "products");
  spec.target = Target::cuda;
  TinyModel wide;
  wide.dims.head_dim = 8;  // cuDNN takes no other than multiples of it
  const job::Worker worker(session(), wide.graph(DType::bf16), spec, {}, runtime::make_host_device());
  ASSERT_EQ(worker.notes().size(), 3u) << "once, whatever the layers and micro-batches";
  for (const engine::Note& note : worker.notes()) EXPECT_EQ(note.what, "attention");
  EXPECT_EQ(worker.notes()[0].text, "blockwise on the CPU");
  EXPECT_NE(worker.notes()[1].text.find("data.max_documents"), std::string::npos);
  EXPECT_EQ(worker.notes()[2].text, "backward: blockwise on the CPU");
  if (session().size() == 1) return;
  spec.mesh = {};
  spec.mesh[Axis::context] = session().size();
  spec.context = model::ContextMethod::ring;
  wide.token_order = program::token_order(spec.mesh, spec.context);
  const job::Worker ring(session(), wide.graph(DType::bf16), spec, {}, runtime::make_host_device());
  ASSERT_EQ(ring.notes().size(), 2u);
  EXPECT_TRUE(ring.notes()[0].text.starts_with("of a part of the tokens: streaming kernels without"));
  EXPECT_TRUE(ring.notes()[1].text.starts_with("backward: of a part of the tokens"));
}

/// What a watchdog says of a step whose work on the device never ends.
TEST(AsynchronousStep, NamesTheOpThatTheDeviceIsAt) {
  if (session().size() > 1) return;  // the host waits for messages there, and is at an op itself
  kernels::initialize_backend();
  const TinyModel m;
  const program::JobSpec spec = spec_of(m, "NO_SHARD");
  auto owned = std::make_unique<test::StuckDevice>(late(5));
  test::StuckDevice& device = *owned;
  job::Worker worker(session(), m.graph(DType::bf16), spec, {}, std::move(owned));
  const auto step = [&](int, auto run) {
    run();
    EXPECT_EQ(worker.where(), "");
    device.stop_after(4, std::chrono::milliseconds(3000));
    EXPECT_THROW(run(), Error);
    EXPECT_TRUE(worker.where().starts_with("the host waits for the device: compute is ")) << worker.where();
    EXPECT_NE(worker.where().find("micro 0"), std::string::npos) << worker.where();
  };
  test::train_losses(worker, m, spec.micro_batches, 1, step);
}

INSTANTIATE_TEST_SUITE_P(Strategies, Asynchronous, testing::Values("NO_SHARD", "zero2", "FULL_SHARD"));

}  // namespace
}  // namespace ztrain::asynchronous_test
