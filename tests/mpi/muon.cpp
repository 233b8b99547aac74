// Tests Muon on meshes of every pair of axes, with experts. Training equals that of one rank in fp64,
// strategies give the same bits and take the planned memory, and checkpoints are read on other meshes. The
// run with one rank leaves its losses in a file.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.hpp"
#include "job/held_pieces.hpp"
#include "job/weights.hpp"
#include "kernels/launch/exec.hpp"
#include "kernels/orthogonal/record.hpp"
#include "program/passes/place.hpp"
#include "tests/support/as_planned.hpp"
#include "tests/support/folder_of_ranks.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/tiny_job.hpp"
#include "train/audits.hpp"

namespace ztrain::muon_test {
namespace {

using test::session;
using test::TinyModel;

constexpr Axis axes[] = {Axis::pipeline, Axis::replicate, Axis::shard,
                         Axis::expert,   Axis::context,   Axis::tensor};

class Muon : public testing::Test {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }

  Muon() {
    config::Model& m = model_.dims;
    m.family = "qwen2_moe";
    m.num_experts = 8, m.num_experts_per_tok = 2, m.moe_intermediate_size = 20;
    m.shared_expert_intermediate_size = 28;
    model_.sequence = 32;
    model_.global = 8;
  }

  /// Returns every mesh of the ranks over one axis or two. The model has two blocks, and two heads of keys.
  static std::vector<MeshShape> meshes() {
    std::vector<MeshShape> all;
    const int ranks = session().size();
    for (const Axis a : axes)
      for (const Axis b : axes)
        for (int of_a = a == b ? ranks : 2; a == b || (a < b && of_a < ranks); of_a *= 2) {
          MeshShape mesh;
          mesh[a] = of_a;
          if (a != b) mesh[b] = ranks / of_a;
          if (mesh[Axis::pipeline] <= 2 && mesh[Axis::tensor] <= 4) all.push_back(mesh);
          if (a == b) break;
        }
    return all;
  }

  program::JobSpec spec(const MeshShape& mesh, const char* strategy, DType type) {
    using model::ContextMethod::gather;
    model_.token_order = program::token_order(mesh, gather, mesh[Axis::tensor]);
    program::JobSpec spec = test::spec_for(model_, mesh, strategy, test::precision_of(type));
    spec.context = gather;
    spec.token_multiple = mesh[Axis::tensor];
    spec.tensor = model::decoder_tensor_plan(model_.dims, mesh[Axis::tensor]);
    if (mesh[Axis::pipeline] > 1) spec.schedule = program::find_schedule("1f1b");
    spec.optimizer.options.name = "muon";
    spec.optimizer.options.nesterov = true;
    return spec;
  }

  TinyModel model_;
};

std::filesystem::path file_of_one_rank() {
  return std::filesystem::path(ZTRAIN_TEST_FOLDER) / "muon.json";
}

TEST_F(Muon, TrainsAsOneRank) {
  constexpr int steps = 2;
  if (session().size() == 1)
    std::ofstream(file_of_one_rank())
        << nlohmann::json(test::losses_of(session(), model_, spec({}, "NO_SHARD", DType::f64), steps, true));
  std::ifstream file(file_of_one_rank());
  ASSERT_TRUE(file) << "run this test with one rank first";
  const auto expected = nlohmann::json::parse(file).get<std::vector<double>>();
  for (const MeshShape& mesh : meshes()) {
    const auto found = test::losses_of(session(), model_, spec(mesh, "FULL_SHARD", DType::f64), steps, true);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], 1e-9 * expected[i]) << mesh.describe() << " [" << i << "]";
  }
}

/// Memory is poisoned when its lifetime ends, so a read of unwritten memory shows. Copies stay equal.
TEST_F(Muon, GivesTheSameBitsUnderEachStrategyAsPlanned) {
  for (const MeshShape& mesh : meshes()) {
    if (session().size() > 1 && (mesh.size(state_axes) == 1 || mesh[Axis::replicate] > 1)) continue;
    std::vector<double> expected;
    for (const char* strategy : {"NO_SHARD", "FULL_SHARD"}) {
      SCOPED_TRACE(testing::Message() << strategy << " " << mesh.describe());
      const program::JobSpec cut = spec(mesh, strategy, DType::bf16);
      job::Worker worker(session(), model_.graph(DType::bf16), cut, {.poison = true});
      const auto found = test::train_losses(worker, model_, cut.micro_batches, 2,
                                            [&](int, auto run) { test::expect_planned_bytes(worker, run); });
      if (expected.empty()) expected = found;
      EXPECT_EQ(found, expected);
      EXPECT_EQ(train::differing_copies(session(), job::held_pieces(worker)).text, "");
      test::expect_planned_memory(worker);
    }
  }
}

/// Matrices have one moment and all else has two, whatever the mesh.
TEST_F(Muon, CheckpointsAreReadOnOtherMeshes) {
  const test::FolderOfRanks folder;
  const auto step = [&](job::Worker& worker, const program::JobSpec& spec) {
    test::fill(worker, model_, spec.micro_batches, 0);
    test::set_scalars(worker.scalars(), 0);
    worker.step();
    return worker.scalars().loss;
  };
  const std::vector<MeshShape> all = meshes();
  std::int64_t number = 0;
  for (std::size_t i = 0; i < all.size(); i += 4) {
    const program::JobSpec from = spec(all[i], "FULL_SHARD", DType::f64);
    job::Worker writer(session(), model_.graph(DType::f64), from);
    writer.initialize(11);
    step(writer, from);
    const auto place = job::place_of(writer.job().load(), writer.job().layout);
    checkpoint::save(folder.path(), ++number, place, writer.state(true), {}, {});
    step(writer, from);
    const double expected = step(writer, from);
    const program::JobSpec to = spec(all[(i + 1) % all.size()], "zero2", DType::f64);
    job::Worker reader(session(), model_.graph(DType::f64), to);
    const auto there = job::place_of(reader.job().load(), reader.job().layout);
    checkpoint::load(folder.path() / ("step_" + std::to_string(number)), there, reader.state(true));
    reader.derive_parameters();
    step(reader, to);
    EXPECT_NEAR(step(reader, to), expected, 1e-9 * expected) << all[i].describe();
  }
}

/// Programs fail if parts of matrices are not gathered, or if results of other ranks count twice.
TEST_F(Muon, IsNotProvenWithoutWholeMatrices) {
  if (session().size() > 1) GTEST_SKIP() << "any rank's Program compiles on one";
  using program::Op;
  const std::pair<const char*, void (*)(Op&)> faults[] = {
      {"were not gathered",
       [](Op& op) {
         if (op.action.kind == program::ActionKind::optimize && op.comm.kind == program::CommKind::all_gather)
           op.comm.axes = {};
       }},
      {"adds up", [](Op& op) {
         if (op.type == Orthogonalise::op)
           edit<Orthogonalise>(op.attributes, [](Orthogonalise& o) { o.over = 0; });
       }}};
  for (const Axis axis : {Axis::shard, Axis::tensor}) {
    MeshShape mesh;
    mesh[axis] = 2;
    program::JobSpec cut = spec(mesh, "FULL_SHARD", DType::f32);
    EXPECT_NO_THROW(program::compile(model_.graph(DType::f32), cut, 1));
    for (const auto& [words, fault] : faults) {
      cut.program_passes = {[fault = fault](program::Program& p) {
        for (Op& op : p.ops) fault(op);
      }};
      try {
        program::compile(model_.graph(DType::f32), cut, 1);
        ADD_FAILURE() << name_of(axis) << ": not found: " << words;
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
      }
    }
  }
}

}  // namespace
}  // namespace ztrain::muon_test
