// Training on the product's CUDA device, with its communicators and graphs, on a CUDA that runs everything as
// late as it may: the same losses as on the CPU device, bit for bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/strategy.hpp"
#include "engine/kernel_table.hpp"
#include "engine/library_kernels.hpp"
#include "kernels/launch/exec.hpp"
#include "tests/late_cuda/late_device.hpp"
#include "tests/late_cuda/late_nccl.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::training_test {
namespace {

using test::session;
using test::TinyModel;

constexpr int steps = 3;

program::JobSpec spec_of(const TinyModel& m, const char* strategy) {
  return test::spec_of_ranks(m, strategy, session().size());
}

/// Of some steps, and of an evaluation after them.
std::vector<double> losses_of(job::Worker& worker, const TinyModel& m) {
  const int micro_batches = static_cast<int>(m.global / (m.micro * worker.data_ranks()));
  auto losses = test::train_losses(worker, m, micro_batches, steps, [](int, auto run) { run(); });
  worker.evaluate_batch();
  losses.push_back(worker.partials()[0].loss_sum);
  return losses;
}

class TrainingOnLateCuda : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }
  void SetUp() override {
    if (config::find_strategy(GetParam()).within_node && session().size() < 4)
      GTEST_SKIP() << "needs two groups of two ranks";
  }

  program::JobSpec spec_on_cpu() const {
    program::JobSpec spec = spec_of(model, GetParam());
    if (schedule != nullptr) {
      spec.mesh[Axis::pipeline] = session().size();
      spec.mesh[Axis::shard] = 1;
      spec.micro_batches *= session().size();
      spec.schedule = program::find_schedule(schedule);
    }
    return spec;
  }
  std::vector<double> on_the_cpu() {
    job::Worker worker(session(), model.graph(DType::bf16), spec_on_cpu(), {}, runtime::make_host_device());
    return losses_of(worker, model);
  }
  std::vector<double> on_cuda(std::uint64_t seed, const job::WorkerOptions& options) {
    const late_cuda::Options late{.seed = 100 * seed + static_cast<std::uint64_t>(session().rank()),
                                  .runs_when_idle = session().size() > 1,
                                  .driver = driver};
    auto device = test::make_late_device(late, session().local_rank());
    auto backend = runtime::make_backend(session(), device->cuda(), options.device);
    program::JobSpec spec = spec_on_cpu();
    spec.offload = offload;
    job::Worker worker(session(), model.graph(DType::bf16), spec, options,
                       {std::move(device), std::move(backend)});
    return losses_of(worker, model);
  }
  /// communicator, graphs: as the deck has them.
  void expect_same(const char* communicator, const char* graphs, bool poison) {
    job::WorkerOptions options;
    options.poison = poison;
    options.device.communicator = communicator;
    options.device.cuda_graphs = graphs;
    options.nvme.paths = {std::filesystem::temp_directory_path()};
    static std::map<std::string, std::vector<double>> expected;  // by strategy and schedule
    auto& losses = expected[std::string(GetParam()) + (schedule != nullptr ? schedule : "")];
    if (losses.empty()) losses = on_the_cpu();
    for (std::uint64_t seed = 0; seed < 2; ++seed) EXPECT_EQ(on_cuda(seed, options), losses) << seed;
  }

  TinyModel model;
  const char* schedule = nullptr;  ///< of a pipeline over all ranks
  program::OffloadOptions offload;
  int driver = CUDART_VERSION;
};

TEST_P(TrainingOnLateCuda, ThroughHostMemory) {
  expect_same("mpi", "none", false);
}

TEST_P(TrainingOnLateCuda, ThroughHostMemoryWithGraphsAndPoison) {
  expect_same("mpi", "compute", true);
}

TEST_P(TrainingOnLateCuda, OneRankAsOneGraph) {
  if (session().size() > 1) GTEST_SKIP() << "the host drives communication through its memory";
  expect_same("mpi", "step", false);
}

TEST_P(TrainingOnLateCuda, WithAllStatesElsewhere) {
  if (session().size() > 2) GTEST_SKIP() << "two ranks show it";
  const program::Home host{program::Tier::host, 1}, nvme{program::Tier::nvme, 1};
  offload = {host, host, nvme, nvme, host, program::StepOn::device};
  expect_same("mpi", "compute", true);
  if (session().size() > 1) return;
  offload = {host, host, host, host, host, program::StepOn::device};
  expect_same("mpi", "step", false);
}

// NCCL's sums of fp32 are formed in rank order here.
TEST_P(TrainingOnLateCuda, OverNcclAlsoAsOneGraph) {
  late_nccl::configure({});
  const bool groups = config::find_strategy(GetParam()).within_node;
  if (session().size() < 4 || groups) expect_same("nccl", "none", false);
  expect_same("nccl", "step", true);
  EXPECT_EQ(late_nccl::communicators(), 0) << "not given back";
  EXPECT_EQ(late_nccl::failure(), "");
}

// Every direction of messages between stages has a communicator, whose sides are on different queues.
TEST_P(TrainingOnLateCuda, StagesOverNccl) {
  if (session().size() == 1 || std::string_view(GetParam()) != "FULL_SHARD")
    GTEST_SKIP() << "one strategy shows it";
  late_nccl::configure({});
  model.dims.num_hidden_layers = 8;
  for (const char* name : {"1f1b", "interleaved", "zb-v"}) {
    schedule = name;
    expect_same("nccl", "none", std::string_view(name) == "1f1b");
  }
  EXPECT_EQ(late_nccl::communicators(), 0) << "not given back";
  EXPECT_EQ(late_nccl::failure(), "");
}

/// With an older driver NCCL's messages in one graph wait for each other's end.
TEST_P(TrainingOnLateCuda, StagesAsOneGraphNeedADriverThatOrdersThem) {
  if (session().size() == 1 || std::string_view(GetParam()) != "FULL_SHARD")
    GTEST_SKIP() << "one strategy shows it";
  late_nccl::configure({});
  model.dims.num_hidden_layers = 8;
  schedule = "1f1b";
  job::WorkerOptions options;
  options.device.communicator = "nccl";
  options.device.cuda_graphs = "step";
  driver = 12080;
  const std::string text = test::error_of([&] { on_cuda(0, options); });
  EXPECT_NE(text.find("needs a driver of CUDA 12.9 or later"), std::string::npos) << text;
  driver = 12090;
  EXPECT_EQ(on_cuda(0, options), on_the_cpu());
}

/// Counts what is submitted as kernels.
struct Submissions : test::ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void submit(runtime::Queue queue, const std::function<void()>& work) override {
    ++count;
    blamed += !std::exchange(forgotten, false);
    inner().submit(queue, work);
  }
  void forget_errors() override {
    forgotten = true;
    inner().forget_errors();
  }
  int count = 0;
  int blamed = 0;  ///< of these, without errors forgotten since the submission before
  bool forgotten = false;
};

TEST(LibraryKernels, RunOnceBeforeTheFirstStepAndLeaveZeros) {
  kernels::initialize_backend();
  const TinyModel model;
  auto late = test::make_late_device({.runs_when_idle = session().size() > 1}, session().local_rank());
  runtime::Device& cuda = late->cuda();
  auto device = std::make_unique<Submissions>(std::move(late));
  auto backend = runtime::make_backend(session(), cuda, job::default_device_options());
  Submissions& submissions = *device;
  job::Worker worker(session(), model.graph(DType::bf16), spec_of(model, "FULL_SHARD"), {},
                     {std::move(device), std::move(backend)});
  std::set<std::string> kinds, keys;
  for (const program::Program* p : {&worker.job().train(), &worker.job().evaluate()})
    for (const program::Op& op : p->ops)
      if (engine::calls_library(op)) {
        keys.insert(engine::kernel_key(*p, op));
        kinds.insert(std::string(op.type));
      }
  EXPECT_TRUE(kinds.contains("linear_grad_weight") && kinds.contains("attention_grad"));
  EXPECT_EQ(submissions.count, std::ssize(keys));
  EXPECT_EQ(submissions.blamed, 0) << "an error of binding would be its launch's";
  worker.initialize(7);
  engine::load_library_kernels(session(), {&worker.job().train()}, worker.memory(), worker.mesh(),
                               worker.queues());
  worker.memory().each_region(program::Tier::device, [&](void* data, std::int64_t bytes) {
    std::vector<char> read(static_cast<std::size_t>(bytes));
    worker.memory().provider().read(read.data(), data, bytes);
    EXPECT_EQ(std::ranges::count(read, 0), bytes);
  });
}

INSTANTIATE_TEST_SUITE_P(Strategies, TrainingOnLateCuda,
                         testing::Values("zero2", "FULL_SHARD", "HYBRID_SHARD"));

}  // namespace
}  // namespace ztrain::training_test
