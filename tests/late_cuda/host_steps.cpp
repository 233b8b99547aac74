// Optimizers that step on the host beside the product's CUDA device, on a CUDA that runs everything as late
// as it may and closes the device's memory to the host: the bits of CPU ranks without offload, whatever the
// rule, the strategy, the tiers and the graphs; and not one of the events that order it can be left out.

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/strategy.hpp"
#include "kernels/launch/exec.hpp"
#include "tests/late_cuda/late_device.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::host_steps_test {
namespace {

using program::Home;
using program::Stream;
using program::Tier;
using runtime::Event;
using runtime::Queue;
using test::session;
using test::TinyModel;

constexpr int steps = 4, skipped = 2;  ///< skipped: the step whose gradients are not finite

/// A way to train, and where its states are.
struct Way {
  const char* strategy = "FULL_SHARD";
  const char* optimizer = "adamw";
  const char* precision = "mixed";
  Home gradients{}, master{Tier::host, 1}, optimizer_states{Tier::host, 1}, parameters{};
  const char* graphs = "none";
  bool poison = false;
  program::StepOn on = program::StepOn::automatic;
};

std::string text_of(const Way& w) {
  return fmt::format("{} {} {}, gradients {}, master {} {}, states {} {}, parameters {}, graphs {}",
                     w.strategy, w.optimizer, w.precision, name_of(w.gradients.tier), name_of(w.master.tier),
                     w.master.fraction, name_of(w.optimizer_states.tier), w.optimizer_states.fraction,
                     name_of(w.parameters.tier), w.graphs);
}

program::Precision precision_of(const Way& way) {
  using enum DType;
  const std::string_view name = way.precision;
  if (name == "fp32") return {f32, f32, f32, f32, f32};
  if (name == "pure") return {bf16, bf16, bf16, bf16, bf16};
  return {bf16, f32, f32, f32, f32};
}

program::JobSpec spec_of(const TinyModel& m, const Way& way) {
  program::JobSpec spec = test::spec_of_ranks(m, way.strategy, session().size());
  spec.precision = precision_of(way);
  spec.optimizer.options.name = way.optimizer;
  spec.optimizer.stochastic_rounding = spec.precision.master == DType::bf16;
  return spec;
}

program::OffloadOptions offload_of(const Way& way) {
  program::OffloadOptions o;
  o.parameters = way.parameters;
  o.gradients = way.gradients;
  o.master = way.master;
  o.optimizer = way.optimizer_states;
  o.step = way.on;
  return o;
}

/// Of some steps, one of which is skipped, and of an evaluation behind them.
std::vector<double> losses_of(job::Worker& worker, const TinyModel& m, int micro_batches) {
  int taken = 0;
  auto losses = test::train_losses(worker, m, micro_batches, steps, [&](int step, auto run) {
    if (step == skipped) worker.scalars().loss_scale = 1e300;
    run();
    taken += worker.scalars().found_inf == 0 ? 1 : 0;
  });
  std::erase_if(losses, [](double x) { return !std::isfinite(x); });
  losses.push_back(taken);
  worker.evaluate_batch();
  losses.push_back(worker.partials()[0].loss_sum);
  return losses;
}

std::vector<double> on_the_cpu(const TinyModel& m, const Way& way) {
  const program::JobSpec spec = spec_of(m, way);
  job::Worker worker(session(), m.graph(spec.precision.parameters), spec, {}, runtime::make_host_device());
  return losses_of(worker, m, spec.micro_batches);
}

std::vector<double> on_cuda(const TinyModel& m, const Way& way, std::unique_ptr<test::LateDevice> device) {
  program::JobSpec spec = spec_of(m, way);
  spec.offload = offload_of(way);
  job::WorkerOptions options{.poison = way.poison, .host_threads = 2};
  options.device.communicator = "mpi";
  options.device.cuda_graphs = way.graphs;
  options.nvme.paths = {std::filesystem::temp_directory_path()};
  options.nvme.checksums = true;
  auto backend = runtime::make_backend(session(), device->cuda(), options.device);
  job::Worker worker(session(), m.graph(spec.precision.parameters), spec, options,
                     {std::move(device), std::move(backend)});
  return losses_of(worker, m, spec.micro_batches);
}

late_cuda::Options late(std::uint64_t seed) {
  return {.seed = 100 * seed + static_cast<std::uint64_t>(session().rank()),
          .runs_when_idle = session().size() > 1};
}

/// Each strategy with other rules, tiers, types and graphs.
std::vector<Way> ways() {
  constexpr std::array strategies{"NO_SHARD",      "zero1",      "zero2",
                                  "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD"};
  constexpr std::array rules{"adamw", "lion", "adamw_8bit", "sgd", "adam"};
  constexpr std::array precisions{"mixed", "fp32", "mixed", "pure"};
  constexpr std::array homes{Home{Tier::host, 1}, Home{Tier::nvme, 1}, Home{Tier::host, 0.4},
                             Home{Tier::device, 1}, Home{Tier::nvme, 0.4}};
  std::vector<Way> all;
  for (std::size_t i = 0; i < 2 * strategies.size(); ++i) {
    Way way{strategies[i % strategies.size()], rules[i % rules.size()], precisions[i % precisions.size()]};
    way.gradients = homes[(2 * i) % homes.size()];
    way.master = homes[(i + 1) % homes.size()];
    way.optimizer_states = homes[i % homes.size()];
    way.parameters = homes[(3 + 3 * i) % homes.size()];
    way.graphs = i % 2 == 0 ? "compute" : "none";
    way.poison = i % 3 != 1;
    way.on = i % 4 == 3 ? program::StepOn::automatic : program::StepOn::host;
    if (config::find_strategy(way.strategy).within_node && session().size() < 4) continue;
    all.push_back(way);
  }
  return all;
}

class HostSteps : public testing::Test {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }
  TinyModel model;
};

TEST_F(HostSteps, HaveTheBitsOfCpuRanks) {
  for (const Way& way : ways()) {
    SCOPED_TRACE(text_of(way));
    const std::vector<double> expected = on_the_cpu(model, way);
    EXPECT_EQ(expected[expected.size() - 2], steps - 1) << "one is skipped";
    for (std::uint64_t seed = 0; seed < 2; ++seed)
      EXPECT_EQ(on_cuda(model, way, test::make_late_device(late(seed), session().local_rank())), expected);
  }
}

TEST_F(HostSteps, AreNodesOfAGraphOfTheStep) {
  if (session().size() > 1) GTEST_SKIP() << "the host drives communication through its memory";
  Way way;
  way.graphs = "step";
  way.poison = true;
  for (const Tier gradients : {Tier::device, Tier::host}) {
    way.gradients.tier = gradients;
    EXPECT_EQ(on_cuda(model, way, test::make_late_device(late(1))), on_the_cpu(model, way));
  }
}

/// A queue that waits for an event.
using Wait = std::pair<Queue, Event>;

/// Writes down who waits for what, or leaves one of these out.
class WaitlessDevice final : public test::LateDevice {
 public:
  WaitlessDevice(std::unique_ptr<runtime::Device> cuda, std::set<Wait>& seen, const Wait& left_out)
      : LateDevice(std::move(cuda)), seen_(seen), left_out_(left_out) {}

  void run_on_host(Queue queue, const std::function<void()>& work) override {
    EXPECT_NE(queue, runtime::compute_queue);
    ++on_host;
    LateDevice::run_on_host(queue, work);
  }
  /// Who waits lets some streams run far ahead of others; who asks runs a little of each.
  bool done(Event event) override {
    synchronize(event);
    return LateDevice::done(event);
  }
  void record(Event event, Queue queue) override {
    of_queue[event] = queue;
    LateDevice::record(event, queue);
  }
  void wait(Queue queue, Event event) override {
    seen_.insert({queue, event});
    if (Wait{queue, event} != left_out_) LateDevice::wait(queue, event);
  }

  static inline int on_host = 0;
  static inline std::map<Event, Queue> of_queue;  ///< whose work an event stands for

 private:
  std::set<Wait>& seen_;
  Wait left_out_;
};

/// An executor lets all its queues wait for its start, which is no event of an op.
bool is_of_ops(const std::set<Wait>& waits, const Wait& wait) {
  for (const Stream stream : {Stream::to_device, Stream::to_host, Stream::host})
    if (!waits.contains({engine::queue_of(stream), wait.second})) return true;
  return false;
}

/// Whether the losses differ for some order of the work.
bool is_missed(const TinyModel& model, const Way& way, const Wait& wait,
               const std::vector<double>& expected) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    late_cuda::restart(late(seed));
    std::set<Wait> seen;
    const auto losses =
        on_cuda(model, way,
                std::make_unique<WaitlessDevice>(runtime::make_device(session().local_rank()), seen, wait));
    if (losses != expected) return true;
  }
  return false;
}

/// The queue of the host's steps waits for copies, copies wait for it, and kernels for copies.
TEST_F(HostSteps, NeedEachOfTheirEvents) {
  if (session().size() > 1) GTEST_SKIP() << "one rank shows it";
  // Without padding, so that a unit's parameters are one copy: the fewer operations, the sooner each order
  // comes.
  model.dims.hidden_size = model.dims.intermediate_size = model.dims.vocab_size = 256;
  model.dims.head_dim = 64;
  Way way;
  way.poison = true;
  const std::vector<double> expected = on_the_cpu(model, way);
  std::set<Wait> waits;
  const auto losses_of = [&](bool poison) {
    way.poison = poison;
    late_cuda::restart(late(0));
    waits.clear();
    WaitlessDevice::on_host = 0;
    return on_cuda(model, way,
                   std::make_unique<WaitlessDevice>(runtime::make_device(0), waits, Wait{-1, -1}));
  };
  ASSERT_EQ(losses_of(false), expected);
  EXPECT_EQ(WaitlessDevice::on_host % steps, 0);
  EXPECT_GE(WaitlessDevice::on_host, steps * (model.dims.num_hidden_layers + 2))
      << "a step of each unit; fills are the host's work too";
  ASSERT_EQ(losses_of(true), expected);
  int of_host = 0;
  for (const Wait& wait : waits) {
    const auto stream = static_cast<Stream>(wait.first);
    if (!is_of_ops(waits, wait) || (stream != Stream::host && stream != Stream::to_host)) continue;
    of_host += stream == Stream::host;
    EXPECT_TRUE(is_missed(model, way, wait, expected))
        << name_of(stream) << " does without event " << wait.second << " of "
        << name_of(static_cast<Stream>(WaitlessDevice::of_queue[wait.second]));
  }
  EXPECT_GE(of_host, 3) << "steps of units that wait for what they read, or may write over";
}

}  // namespace
}  // namespace ztrain::host_steps_test
