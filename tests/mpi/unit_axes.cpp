// Units that are cut over other axes than the rest, or only between matrices: the same training, whatever the
// mesh, and checkpoints that any other mesh reads.

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

namespace ztrain::unit_axes_test {
namespace {

using test::session;
using test::StepResult;
using test::TinyModel;
using GraphPass = void (*)(model::Graph&, const Coordinate&);

/// What a family would say where experts are spread over context: the rest of the axes cuts their state.
void over_shard_alone(model::Graph& graph, const Coordinate&) {
  for (model::Parameter& p : graph.parameters)
    if (p.name.find(".mlp.") != std::string::npos) p.state_over = Axis::shard;
}
/// What an optimizer of matrices asks for.
void between_matrices(model::Graph& graph, const Coordinate&) {
  for (model::Parameter& p : graph.parameters) p.whole = Whole::matrix;
}

class UnitAxes : public testing::Test {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }

  UnitAxes() { model_.global = 8; }

  /// Every mesh of the ranks over replicate, shard and context.
  static std::vector<MeshShape> meshes() {
    std::vector<MeshShape> all;
    const int ranks = session().size();
    for (int replicate = 1; replicate <= 2; ++replicate)
      for (int context = 1; context <= ranks; context *= 2) {
        if (ranks % (replicate * context) != 0) continue;
        MeshShape mesh;
        mesh[Axis::replicate] = replicate, mesh[Axis::context] = context;
        mesh[Axis::shard] = ranks / replicate / context;
        all.push_back(mesh);
      }
    return all;
  }

  program::JobSpec spec(const MeshShape& mesh, const char* strategy, DType type, GraphPass pass = nullptr) {
    model_.token_order = program::token_order(mesh, model::ContextMethod::gather, 1);
    program::JobSpec spec = test::spec_for(model_, mesh, strategy, test::precision_of(type));
    if (pass != nullptr) spec.graph_passes.emplace_back(pass);
    return spec;
  }

  std::vector<double> losses(const program::JobSpec& spec) {
    return test::losses_of(session(), model_, spec, 2, true);
  }

  TinyModel model_;
};

std::filesystem::path file_of_one_rank() {
  return std::filesystem::path(ZTRAIN_TEST_FOLDER) / "unit_axes.cbor";
}

/// The run with one rank, which comes first, leaves its gradients in a file.
TEST_F(UnitAxes, OfSomeParametersChangeNoGradient) {
  const int ranks = session().size();
  if (ranks == 1) {
    const StepResult whole = test::step_result(session(), model_, spec({}, "NO_SHARD", DType::f64));
    std::ofstream file(file_of_one_rank(), std::ios::binary);
    nlohmann::json::to_cbor(nlohmann::json{whole.loss, whole.norm, whole.gradients}, file);
  }
  std::ifstream file(file_of_one_rank(), std::ios::binary);
  ASSERT_TRUE(file) << "run this test with one rank first";
  const nlohmann::json one = nlohmann::json::from_cbor(file);
  const StepResult whole{one[0].get<double>(), one[1].get<double>(),
                         one[2].get<std::map<std::string, std::vector<double>>>()};
  for (const MeshShape& mesh : meshes())
    for (const char* strategy : {"NO_SHARD", "zero2", "FULL_SHARD"})
      for (const bool every : {true, false}) {
        SCOPED_TRACE(testing::Message() << mesh.describe() << " " << strategy << " " << every);
        program::JobSpec apart = spec(mesh, strategy, DType::f64, over_shard_alone);
        apart.sharding.reduce.every_micro = every;
        test::expect_same(whole, test::step_result(session(), model_, apart));
      }
}

/// What is sent is counted, too.
TEST_F(UnitAxes, AreTheSameBitsUnderEachStrategy) {
  for (const MeshShape& mesh : meshes()) {
    std::vector<double> expected;
    for (const char* strategy : {"NO_SHARD", "zero1", "zero2", "SHARD_GRAD_OP", "FULL_SHARD"}) {
      const program::JobSpec apart = spec(mesh, strategy, DType::f32, over_shard_alone);
      job::Worker worker(session(), model_.graph(DType::f32), apart);
      const auto found = test::train_losses(worker, model_, apart.micro_batches, 2,
                                            [&](int, auto run) { test::expect_planned_bytes(worker, run); });
      if (expected.empty()) expected = found;
      EXPECT_EQ(found, expected) << strategy << " " << mesh.describe();
    }
  }
}

TEST_F(UnitAxes, CutBetweenMatricesGiveTheSameBits) {
  for (const MeshShape& mesh : meshes())
    for (const char* strategy : {"zero1", "FULL_SHARD"}) {
      const program::JobSpec cut = spec(mesh, strategy, DType::f32, between_matrices);
      EXPECT_EQ(losses(cut), losses(spec(mesh, strategy, DType::f32))) << strategy << " " << mesh.describe();
      const Layout layout = program::compile(model_.graph(DType::f32), cut, session().rank()).layout;
      for (const FlatUnit& unit : layout.units())
        for (const Piece& piece : layout.pieces(unit.unit, Coordinate(mesh, session().rank()))) {
          const Shape shape = layout.slice_shape(piece.parameter);
          EXPECT_TRUE(shape.size() < 2 || piece.count == elements(shape)) << piece.parameter;
        }
    }
}

/// Saved by each, and loaded by a job of the other and by one that is cut as ever over shard alone.
TEST_F(UnitAxes, CheckpointsAreReadOnOtherMeshes) {
  const test::FolderOfRanks folder;
  const MeshShape last = meshes().back();
  MeshShape plain;
  plain[Axis::shard] = session().size();
  const auto train = [&](job::Worker& worker, const program::JobSpec& spec) {
    test::fill(worker, model_, spec.micro_batches, 0);
    test::set_scalars(worker.scalars(), 0);
    worker.step();
    return worker.scalars().loss;
  };
  std::int64_t number = 0;
  for (const GraphPass pass : {over_shard_alone, between_matrices}) {
    const program::JobSpec from = spec(last, "FULL_SHARD", DType::f64, pass);
    job::Worker writer(session(), model_.graph(DType::f64), from);
    writer.initialize(11);
    train(writer, from);
    const checkpoint::Place place = job::place_of(writer.job().load(), writer.job().layout);
    checkpoint::save(folder.path(), ++number, place, writer.state(true), {}, {});
    const double expected = train(writer, from);
    for (const auto& [mesh, other] : {std::pair<MeshShape, GraphPass>{plain, nullptr},
                                      {last, over_shard_alone},
                                      {last, between_matrices}}) {
      const program::JobSpec to = spec(mesh, "zero2", DType::f64, other);
      job::Worker reader(session(), model_.graph(DType::f64), to);
      const checkpoint::Place there = job::place_of(reader.job().load(), reader.job().layout);
      checkpoint::load(folder.path() / ("step_" + std::to_string(number)), there, reader.state(true));
      reader.derive_parameters();
      EXPECT_NEAR(train(reader, to), expected, 1e-12 * expected) << mesh.describe();
    }
  }
}

}  // namespace
}  // namespace ztrain::unit_axes_test
