// Tied embeddings, of which the first and the last stage have a copy each.

#include <gtest/gtest.h>

#include "kernels/launch/exec.hpp"
#include "tests/support/device_values.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::tied_stages_test {
namespace {

using test::session;
using test::TinyModel;

MeshShape two_stages() {
  MeshShape mesh;
  mesh[Axis::pipeline] = 2, mesh[Axis::shard] = session().size() / 2;
  return mesh;
}

TinyModel tied_model(const MeshShape& mesh) {
  TinyModel m;
  m.dims.num_hidden_layers = 4;
  m.dims.tie_word_embeddings = true;
  m.global = 3 * mesh[Axis::shard];
  return m;
}

/// Of a parameter that two stages have, each steps its own copy: nothing is rounded otherwise there.
TEST(TiedStages, HaveTheSameEmbeddings) {
  kernels::initialize_backend();
  const MeshShape mesh = two_stages();
  const TinyModel m = tied_model(mesh);
  program::JobSpec spec =
      test::spec_for(m, mesh, "FULL_SHARD", {DType::bf16, DType::bf16, DType::bf16, DType::bf16, DType::f32});
  spec.schedule = program::find_schedule("1f1b");
  spec.optimizer.options.name = "adamw_8bit";
  spec.optimizer.stochastic_rounding = true;
  job::Worker worker(session(), m.graph(DType::bf16), spec);
  test::train_losses(worker, m, spec.micro_batches, 3, [](int, auto run) { run(); });
  const Layout& layout = worker.job().layout;
  const auto tied =
      std::ranges::find(layout.parameters(), "model.embed_tokens.weight", &ParameterShape::name);
  ASSERT_NE(tied, layout.parameters().end());
  ASSERT_EQ(tied->other_rank, 1 - Coordinate(mesh, session().rank())[Axis::pipeline]);
  const program::UnitState& state = worker.job().tensors.units[static_cast<std::size_t>(tied->unit)];
  const auto count = static_cast<std::int64_t>(layout.unit(tied->unit).shard_elements);
  const auto own = test::read_elements<std::uint16_t>(worker, state.parameters.slice, 0, count);
  std::vector<std::uint16_t> other(own.size());
  const int partner = (session().rank() + session().size() / 2) % session().size();
  MPI_Sendrecv(own.data(), static_cast<int>(count), MPI_UINT16_T, partner, 0, other.data(),
               static_cast<int>(count), MPI_UINT16_T, partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  EXPECT_EQ(own, other);
  EXPECT_GT(std::ranges::count_if(own, [](std::uint16_t bits) { return bits != 0; }), count / 2);
}

/// Each copy takes its gradient from both stages, and from all shards, however it is sharded itself.
TEST(TiedStages, HaveTheSameLossesInEveryStrategy) {
  kernels::initialize_backend();
  const MeshShape mesh = two_stages();
  const TinyModel m = tied_model(mesh);
  std::vector<double> expected;
  for (const char* strategy : {"FULL_SHARD", "NO_SHARD", "zero1", "zero2"}) {
    program::JobSpec spec = test::spec_for(m, mesh, strategy, test::precision_of(DType::f32));
    spec.schedule = program::find_schedule("1f1b");
    const std::vector<double> losses = test::losses_of(session(), m, spec, 3);
    if (expected.empty()) expected = losses;
    EXPECT_EQ(losses, expected) << strategy;
  }
}

}  // namespace
}  // namespace ztrain::tied_stages_test
