// Mixtures of experts on meshes of every pair of axes: loss, norm and the gradient of each parameter are
// those of one rank in fp64, whatever the tokens choose; strategies give the same bits; checkpoints are read
// on other meshes. The run with one rank leaves its gradients in files.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.hpp"
#include "job/weights.hpp"
#include "kernels/launch/exec.hpp"
#include "program/passes/place.hpp"
#include "tests/support/as_planned.hpp"
#include "tests/support/folder_of_ranks.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/parameter_gradients.hpp"

namespace ztrain::experts_test {
namespace {

using test::session;
using test::StepResult;
using test::TinyModel;

/// What the tokens choose. one_choice: routers of zeros, whose scores are equal, so all tokens go to the
/// first experts and the others are idle.
enum class Chosen : std::uint8_t { drawn, in_turn, one_choice };
constexpr std::pair<Chosen, const char*> choices[] = {
    {Chosen::drawn, "drawn"}, {Chosen::in_turn, "in_turn"}, {Chosen::one_choice, "one_choice"}};

constexpr Axis axes[] = {Axis::pipeline, Axis::replicate, Axis::shard, Axis::context, Axis::tensor};

void zero_routers(model::Graph& graph, const Coordinate&) {
  for (model::Parameter& p : graph.parameters)
    if (p.name.ends_with(".mlp.gate.weight")) p.init = model::Init::zeros;
}

class Experts : public testing::Test {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }

  Experts() {
    config::Model& m = model_.dims;
    m.family = "qwen2_moe";
    m.num_experts = 6, m.num_experts_per_tok = 2, m.moe_intermediate_size = 20;
    m.shared_expert_intermediate_size = 28;
    model_.sequence = 32;
    model_.global = 8;
    model_.balance_coefficient = 0.02, model_.z_coefficient = 0.01;
  }

  /// Every mesh of the ranks over one axis or two.
  static std::vector<MeshShape> meshes() {
    std::vector<MeshShape> all;
    const int ranks = session().size();
    const auto add = [&](Axis a, int of_a, Axis b) {
      MeshShape mesh;
      mesh[a] = of_a;
      if (ranks > of_a) mesh[b] = ranks / of_a;
      // The model has two blocks, and two heads of keys.
      if (mesh[Axis::pipeline] <= 2 && mesh[Axis::tensor] <= 4) all.push_back(mesh);
    };
    for (const Axis a : axes) {
      add(a, ranks, a);
      for (const Axis b : axes)
        for (int of_a = 2; a != b && of_a < ranks; of_a *= 2) add(a, of_a, b);
    }
    return all;
  }

  program::JobSpec spec(const MeshShape& mesh, const char* strategy, DType type,
                        Chosen chosen = Chosen::drawn) {
    model_.balanced_routing = chosen == Chosen::in_turn;
    model_.token_order = program::token_order(mesh, model::ContextMethod::gather, mesh[Axis::tensor]);
    program::JobSpec spec = test::spec_for(model_, mesh, strategy, test::precision_of(type));
    spec.token_multiple = mesh[Axis::tensor];
    spec.tensor = model::decoder_tensor_plan(model_.dims, mesh[Axis::tensor]);
    if (mesh[Axis::pipeline] > 1) spec.schedule = program::find_schedule("1f1b");
    if (chosen == Chosen::one_choice) spec.graph_passes.emplace_back(zero_routers);
    return spec;
  }

  TinyModel model_;
};

std::filesystem::path file_of(const char* choice) {
  return std::filesystem::path(ZTRAIN_TEST_FOLDER) / fmt::format("experts_{}.cbor", choice);
}

void leave(const StepResult& whole, const char* choice) {
  std::ofstream file(file_of(choice), std::ios::binary);
  nlohmann::json::to_cbor(nlohmann::json{whole.loss, whole.norm, whole.gradients}, file);
}

StepResult left(const char* choice) {
  std::ifstream file(file_of(choice), std::ios::binary);
  if (!file) throw Error("run this test with one rank first");
  const nlohmann::json one = nlohmann::json::from_cbor(file);
  return {one[0].get<double>(), one[1].get<double>(),
          one[2].get<std::map<std::string, std::vector<double>>>()};
}

TEST_F(Experts, HaveTheGradientsOfOneRank) {
  for (const auto& [chosen, name] : choices) {
    if (session().size() == 1)
      leave(test::step_result(session(), model_, spec({}, "NO_SHARD", DType::f64, chosen)), name);
    const StepResult whole = left(name);
    for (const MeshShape& mesh : meshes()) {
      // Each rank gives its own tokens turns.
      if (chosen == Chosen::in_turn && mesh[Axis::context] * mesh[Axis::tensor] > 1) continue;
      SCOPED_TRACE(testing::Message() << mesh.describe() << " " << name);
      program::JobSpec cut = spec(mesh, "FULL_SHARD", DType::f64, chosen);
      cut.recompute.every = chosen == Chosen::drawn ? 2 : 0;
      test::expect_same(whole, test::step_result(session(), model_, cut));
    }
  }
}

/// What is sent, and what memory is touched, is what was planned.
TEST_F(Experts, AreTheSameBitsUnderEachStrategy) {
  for (const MeshShape& mesh : meshes()) {
    if (mesh[Axis::shard] * mesh[Axis::context] == 1) continue;
    std::vector<double> expected;
    for (const char* strategy : {"NO_SHARD", "zero1", "zero2", "SHARD_GRAD_OP", "FULL_SHARD"}) {
      const program::JobSpec cut = spec(mesh, strategy, DType::f32);
      job::Worker worker(session(), model_.graph(DType::f32), cut);
      const auto found = test::train_losses(worker, model_, cut.micro_batches, 2,
                                            [&](int, auto run) { test::expect_planned_bytes(worker, run); });
      if (expected.empty()) expected = found;
      EXPECT_EQ(found, expected) << strategy << " " << mesh.describe();
    }
  }
}

/// Each mesh goes on from the checkpoint of the first.
TEST_F(Experts, CheckpointsAreReadOnOtherMeshes) {
  const test::FolderOfRanks folder;
  const auto train = [&](job::Worker& worker, const program::JobSpec& spec) {
    test::fill(worker, model_, spec.micro_batches, 0);
    test::set_scalars(worker.scalars(), 0);
    worker.step();
    return worker.scalars().loss;
  };
  double expected = 0;
  for (const MeshShape& mesh : meshes()) {
    SCOPED_TRACE(testing::Message() << mesh.describe());
    const program::JobSpec cut = spec(mesh, "FULL_SHARD", DType::f64);
    job::Worker worker(session(), model_.graph(DType::f64), cut);
    worker.initialize(expected == 0 ? 11 : 12);
    const checkpoint::Place place = job::place_of(worker.job().load(), worker.job().layout);
    if (expected == 0) {
      train(worker, cut);
      checkpoint::save(folder.path(), 1, place, worker.state(true), {}, {});
      expected = train(worker, cut);
      continue;
    }
    checkpoint::load(folder.path() / "step_1", place, worker.state(true));
    worker.derive_parameters();
    EXPECT_NEAR(train(worker, cut), expected, 1e-12 * expected);
  }
}

}  // namespace
}  // namespace ztrain::experts_test
