// Every pair of settings of offload with each other and with what it must go with: strategy, where each kind
// of state is and how much of it, where the optimizer steps and when, accumulation, optimizer, types,
// recomputation, and a second axis of the mesh. No bit of a loss or a norm changes, and each tier holds what
// was planned.

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <map>

#include "base/shape.hpp"
#include "config/strategy.hpp"
#include "kernels/launch/exec.hpp"
#include "tests/support/as_planned.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/pairwise.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::offload_pairs_test {
namespace {

using program::Home;
using program::OffloadOptions;
using program::StepOn;
using program::Tier;
using test::session;
using test::TinyModel;

constexpr std::array strategies{"NO_SHARD", "zero1", "zero2", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD"};
constexpr std::array optimizers{"adamw", "adamw_8bit", "lion", "sgd", "muon"};
constexpr std::array homes{Home{}, Home{Tier::host, 1}, Home{Tier::nvme, 1}, Home{Tier::host, 0.4},
                           Home{Tier::nvme, 0.4}};
constexpr std::array steps{StepOn::automatic, StepOn::host, StepOn::device};
constexpr std::array kinds{&OffloadOptions::parameters, &OffloadOptions::gradients, &OffloadOptions::master,
                           &OffloadOptions::optimizer, &OffloadOptions::activations};

enum Factor : std::size_t { strategy, optimizer, types, accumulation, other_axis, first_kind };
constexpr std::size_t step_on = first_kind + kinds.size(), recompute = step_on + 1, early = recompute + 1;

using Row = std::vector<int>;
int of(const Row& row, std::size_t factor) {
  return row[factor];
}

std::vector<int> levels() {
  const int ranks = session().size();
  std::vector<int> count(early + 1);
  count[strategy] = ranks == 4 ? 6 : 5;  // copies need two groups
  count[optimizer] = static_cast<int>(optimizers.size());
  count[types] = 3;
  count[accumulation] = 3;
  count[other_axis] = ranks > 1 ? 3 : 1;
  for (std::size_t k = 0; k < kinds.size(); ++k) count[first_kind + k] = static_cast<int>(homes.size());
  count[step_on] = static_cast<int>(steps.size());
  count[recompute] = 2;
  count[early] = 3;
  return count;
}

/// That of two ranks beside those of shard and replicate.
Axis other_of(const Row& row) {
  return std::array{Axis::shard, Axis::tensor, Axis::context}[static_cast<std::size_t>(of(row, other_axis))];
}

MeshShape mesh_of(const Row& row) {
  MeshShape mesh;
  if (other_of(row) != Axis::shard) mesh[other_of(row)] = 2;
  int left = session().size() / mesh.ranks();
  if (config::find_strategy(strategies[at(of(row, strategy))]).within_node && left > 1) {
    mesh[Axis::replicate] = 2;
    left /= 2;
  }
  mesh[Axis::shard] = left;
  return mesh;
}

TinyModel model_of(const Row& row) {
  TinyModel m;
  m.dims.num_hidden_layers = 3;
  m.micro = 2;
  const int micros = of(row, accumulation) == 0 ? 1 : 3;
  m.global = m.micro * micros * mesh_of(row).size(Axis::replicate | Axis::shard);
  return m;
}

program::JobSpec spec_of(const Row& row, const TinyModel& m) {
  using enum DType;
  const std::array<program::Precision, 3> precisions{
      {{f32, f32, f32, f32, f32}, {bf16, f32, f32, f32, f32}, {bf16, bf16, bf16, bf16, bf16}}};
  program::JobSpec spec =
      test::spec_for(m, mesh_of(row), strategies[at(of(row, strategy))], precisions[at(of(row, types))]);
  spec.optimizer.options.name = optimizers[at(of(row, optimizer))];
  spec.optimizer.stochastic_rounding = of(row, types) == 2;
  spec.sharding.reduce.every_micro = of(row, accumulation) == 1;
  if (other_of(row) == Axis::tensor) spec.tensor = model::decoder_tensor_plan(m.dims, 2);
  return spec;
}

/// What changes no bit.
void place(program::JobSpec& spec, const Row& row) {
  for (std::size_t k = 0; k < kinds.size(); ++k) spec.offload.*kinds[k] = homes[at(of(row, first_kind + k))];
  spec.offload.step = steps[at(of(row, step_on))];
  spec.recompute.every = of(row, recompute);
  spec.optimizer.options.during_backward = of(row, early) == 1;
  spec.offload.ahead_of_norm = of(row, early) == 2;
}

std::string text_of(const Row& row) {
  std::string text = fmt::format("{} {}, types {}, accumulation {}, {}", strategies[at(of(row, strategy))],
                                 optimizers[at(of(row, optimizer))], of(row, types), of(row, accumulation),
                                 name_of(other_of(row)));
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    const Home& home = homes[at(of(row, first_kind + k))];
    text += fmt::format(", {} {}", name_of(home.tier), home.fraction);
  }
  return text + fmt::format(", step on {}, recompute {}, early {}", of(row, step_on), of(row, recompute),
                            of(row, early));
}

/// Without a bound on the norm, which steps during backward would need.
std::vector<double> losses_of(job::Worker& worker, const TinyModel& m, int micros) {
  return test::train_losses(worker, m, micros, 2, [&](int, auto run) {
    worker.scalars().max_norm = 0;
    run();
  });
}

/// Of the row without offload, where all that is numerics is the same.
const std::vector<double>& expected(const Row& row) {
  static std::map<Row, std::vector<double>> known;
  std::vector<double>& losses = known[Row(row.begin(), row.begin() + first_kind)];
  if (losses.empty()) {
    const TinyModel m = model_of(row);
    const program::JobSpec spec = spec_of(row, m);
    job::Worker worker(session(), m.graph(spec.precision.parameters), spec);
    losses = losses_of(worker, m, spec.micro_batches);
  }
  return losses;
}

class OffloadPairs : public testing::Test {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }
};

void train(const Row& row) {
  const TinyModel m = model_of(row);
  program::JobSpec spec = spec_of(row, m);
  place(spec, row);
  job::WorkerOptions options{.poison = true};
  options.nvme.paths = {std::filesystem::temp_directory_path()};
  options.nvme.checksums = true;
  job::Worker worker(session(), m.graph(spec.precision.parameters), spec, options);
  EXPECT_EQ(losses_of(worker, m, spec.micro_batches), expected(row));
  test::expect_planned_tiers(worker);
}

TEST_F(OffloadPairs, ChangeNoBit) {
  for (const Row& row : test::Pairwise(levels()).rows()) {
    SCOPED_TRACE(text_of(row));
    try {
      train(row);
    } catch (const Error& e) {
      FAIL() << e.what();
    }
  }
}

}  // namespace
}  // namespace ztrain::offload_pairs_test
