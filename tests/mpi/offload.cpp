// Wherever states and activations are between their uses, no bit of a loss or a norm changes.

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "kernels/launch/backend.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::offload_test {
namespace {

using program::Home;
using program::OffloadOptions;
using program::StepOn;
using program::Tier;
using test::session;
using test::TinyModel;

/// One way to train, without offload.
struct Way {
  const char* strategy = "FULL_SHARD";
  const char* optimizer = "adamw";
  bool bf16 = false, every_micro = false, recompute = false, hybrid = false;
  int micros = 1;
  Axis other = Axis::shard;  ///< an axis of two ranks beside shard, where there are as many
  auto operator<=>(const Way&) const = default;
};

std::string text_of(const Way& w) {
  return fmt::format("{} {}{}{}{}, {} micro-batches, {}", w.strategy, w.optimizer, w.bf16 ? " bf16" : "",
                     w.every_micro ? " reduced each" : "", w.recompute ? " recompute" : "", w.micros,
                     name_of(w.other));
}

std::string text_of(const OffloadOptions& o) {
  std::string text;
  const auto add = [&](const char* what, const Home& home) {
    if (home.tier != Tier::device) text += fmt::format("{} {} {}, ", what, name_of(home.tier), home.fraction);
  };
  add("parameters", o.parameters);
  add("gradients", o.gradients);
  add("master", o.master);
  add("optimizer", o.optimizer);
  add("activations", o.activations);
  return fmt::format("{}step on {}", text, static_cast<int>(o.step));
}

TinyModel model_of(const Way& way) {
  TinyModel m;
  m.dims.num_hidden_layers = 3;
  m.micro = 2;
  m.global = m.micro * way.micros * session().size() / (way.other == Axis::shard ? 1 : 2);
  return m;
}

program::JobSpec spec_of(const Way& way, const TinyModel& m) {
  MeshShape mesh;
  if (way.other != Axis::shard) mesh[way.other] = 2;
  mesh[Axis::shard] = session().size() / mesh[way.other];
  if (way.other == Axis::shard) mesh[Axis::shard] = session().size();
  const DType low = way.bf16 ? DType::bf16 : DType::f32;
  program::JobSpec spec =
      test::spec_for(m, mesh, way.strategy, {low, DType::f32, DType::f32, DType::f32, DType::f32});
  spec.optimizer.options.name = way.optimizer;
  spec.sharding.reduce.every_micro = way.every_micro;
  spec.recompute.every = way.recompute ? 1 : 0;
  if (way.other == Axis::tensor) spec.tensor = model::decoder_tensor_plan(m.dims, 2);
  return spec;
}

constexpr std::array kinds{&OffloadOptions::parameters, &OffloadOptions::gradients, &OffloadOptions::master,
                           &OffloadOptions::optimizer, &OffloadOptions::activations};

/// Every kind by itself and all of them, on the host and on NVMe; and each in another way, all pairs of two
/// kinds' ways among the rows of all `ways`.
std::vector<OffloadOptions> settings(std::size_t way) {
  std::vector<OffloadOptions> all;
  constexpr std::array homes{Home{}, Home{Tier::host, 1}, Home{Tier::nvme, 1}, Home{Tier::host, 0.4},
                             Home{Tier::nvme, 0.4}};
  constexpr std::array steps{StepOn::automatic, StepOn::host, StepOn::device};
  all.emplace_back().*kinds[way % kinds.size()] = {way % 2 == 0 ? Tier::host : Tier::nvme, 1};
  for (const Tier tier : {Tier::host, Tier::nvme}) {
    OffloadOptions& together = all.emplace_back();
    for (const auto kind : kinds) together.*kind = {tier, 1};
    together.step = steps[way % steps.size()];
  }
  for (std::size_t i = 0; i < 2; ++i) {
    OffloadOptions& mixed = all.emplace_back();
    for (std::size_t k = 0; k < kinds.size(); ++k)
      mixed.*kinds[k] = homes[(way + (i + 1) * k + i) % homes.size()];
    mixed.step = steps[(way + i + 1) % steps.size()];
  }
  return all;
}

std::vector<double> losses_of(const TinyModel& m, const program::JobSpec& spec,
                              std::unique_ptr<runtime::Device> device = nullptr) {
  job::WorkerOptions options{.poison = true};
  options.nvme.paths = {std::filesystem::temp_directory_path()};
  options.nvme.checksums = true;
  job::Worker worker(session(), m.graph(spec.precision.parameters), spec, options, std::move(device));
  std::vector<double> losses =
      test::train_losses(worker, m, spec.micro_batches, 2, [](int, auto run) { run(); });
  const engine::JobMemory& memory = worker.memory();
  memory.check_guards();
  std::int64_t in_memory = 0;
  for (const Tier tier : {Tier::device, Tier::host})
    in_memory += memory.persistent_bytes(tier) + memory.transient_bytes(tier);
  EXPECT_EQ(memory.total_bytes(), in_memory) << "NVMe is no memory";
  return losses;
}

std::vector<Way> ways() {
  std::vector<Way> all;
  int i = 0;
  for (const char* strategy : {"NO_SHARD", "zero1", "zero2", "SHARD_GRAD_OP", "FULL_SHARD"}) {
    Way way;
    way.strategy = strategy;
    way.bf16 = i % 2 == 0;
    way.every_micro = i % 3 == 0;
    way.micros = i % 2 == 0 ? 3 : 6;
    way.recompute = i % 3 == 1;
    way.optimizer = std::array{"adamw", "adamw_8bit", "lion"}[static_cast<std::size_t>(i % 3)];
    all.push_back(way);
    ++i;
  }
  if (session().size() == 4) all.clear();  // the strategies need no more than two
  if (session().size() > 1)
    for (const Axis other : {Axis::replicate, Axis::context, Axis::tensor}) {
      Way& way = all.emplace_back();
      way.other = other;
      way.micros = 2;
      way.bf16 = true;
    }
  return all;
}

class Offload : public testing::Test {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }
};

TEST_F(Offload, ChangesNoBit) {
  std::size_t number = 0;
  for (const Way& way : ways()) {
    const TinyModel m = model_of(way);
    program::JobSpec spec = spec_of(way, m);
    const std::vector<double> expected = test::losses_of(session(), m, spec, 2);
    for (const OffloadOptions& options : settings(number++)) {
      spec.offload = options;
      SCOPED_TRACE(text_of(way) + ": " + text_of(options));
      EXPECT_EQ(losses_of(m, spec), expected);
    }
  }
}

/// On a device that runs work as late as it may, with its memory closed to the host, in orders drawn from a
/// seed: what the host tier and NVMe hold is not on the device, and events alone say when it is there.
TEST_F(Offload, ChangesNoBitOnALateDevice) {
  if (runtime::built_for_gpus()) GTEST_SKIP() << "kernels of a build for GPUs do not reach such memory";
  Way way;
  way.bf16 = true;
  way.micros = 2;
  const TinyModel m = model_of(way);
  program::JobSpec spec = spec_of(way, m);
  const std::vector<double> expected = test::losses_of(session(), m, spec, 2);
  for (const Tier tier : {Tier::host, Tier::nvme})
    for (const StepOn step : {StepOn::host, StepOn::device})
      for (int seed = 0; seed < 2; ++seed) {
        spec.offload.step = step;
        for (const auto kind : kinds) spec.offload.*kind = {tier, 1};
        SCOPED_TRACE(text_of(spec.offload));
        EXPECT_EQ(losses_of(m, spec, runtime::make_deferred_device(static_cast<std::uint64_t>(seed))),
                  expected);
      }
}

}  // namespace
}  // namespace ztrain::offload_test
