// Pipelines of many ranks, in fp64: with every axis at once the loss, the norm and the gradient of each
// parameter are those of ranks that have the whole model (pipeline_pairs.cpp has all pairs on few ranks).
// Schedules give each other's bits.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>

#include "kernels/launch/backend.hpp"
#include "program/passes/place.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/parameter_gradients.hpp"

namespace ztrain::pipeline_test {
namespace {

using enum model::ContextMethod;
using test::session;
using test::StepResult;
using test::TinyModel;

struct Row {
  int ranks;
  const char* schedule;
  int pipeline;
  int replicate = 1, context = 1, tensor = 1;  ///< the rest of the ranks is shard
  const char* strategy = "FULL_SHARD";
  void (*set)(TinyModel&) = [](TinyModel&) {};
  int chunks = 0;     ///< 0: the schedule's
  int recompute = 0;  ///< every so many blocks
  bool every_micro = true;
  model::ContextMethod method = gather;
  int micros = 4;
};

void packed(TinyModel& m) {
  m.document_ends = {1, 2, 5, 12};
}
void with_biases(TinyModel& m) {
  m.dims.attention_bias = m.dims.attention_output_bias = m.dims.qk_norm = true;
}
void tied(TinyModel& m) {
  m.dims.tie_word_embeddings = true;
}
void tied_and_packed(TinyModel& m) {
  tied(m);
  packed(m);
}
void by_heads(TinyModel& m) {
  m.dims.num_key_value_heads = 4;
}

constexpr Row rows[] = {
    {.ranks = 8,
     .schedule = "gpipe",
     .pipeline = 2,
     .replicate = 2,
     .tensor = 2,
     .strategy = "NO_SHARD",
     .set = tied},
    {.ranks = 8, .schedule = "1f1b", .pipeline = 2, .context = 2, .tensor = 2, .set = packed, .recompute = 1},
    {.ranks = 8, .schedule = "zb-v", .pipeline = 2, .context = 2, .set = by_heads, .method = heads},
    {.ranks = 8, .schedule = "zb-h1", .pipeline = 4, .tensor = 2, .set = with_biases, .every_micro = false},
    {.ranks = 8, .schedule = "1f1b", .pipeline = 8, .strategy = "zero1", .set = tied, .micros = 3},
    {.ranks = 16,
     .schedule = "interleaved",
     .pipeline = 2,
     .context = 2,
     .tensor = 2,
     .set = tied_and_packed,
     .method = ring},
    {.ranks = 16,
     .schedule = "dualpipe-v",
     .pipeline = 2,
     .replicate = 2,
     .tensor = 2,
     .strategy = "HYBRID_SHARD",
     .set = tied,
     .recompute = 1,
     .micros = 2},
};

std::string name_of(const testing::TestParamInfo<Row>& info) {
  std::string name = std::to_string(info.index) + "_" + info.param.schedule;
  std::ranges::replace(name, '-', '_');
  return name;
}

class Pipeline : public testing::TestWithParam<Row> {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }
};

TEST_P(Pipeline, GivesTheGradientsOfTheWholeModel) {
  const Row& row = GetParam();
  if (session().size() != row.ranks) GTEST_SKIP() << "for " << row.ranks << " ranks";
  TinyModel m;
  m.dims.num_hidden_layers = row.pipeline > 4 ? 9 : 5;
  const int shard = row.ranks / (row.pipeline * row.replicate * row.context * row.tensor);
  m.global = row.micros * row.replicate * shard;
  row.set(m);
  const program::Precision f64 = test::precision_of(DType::f64);
  MeshShape alone;
  alone[Axis::tensor] = row.ranks;
  program::JobSpec whole_spec = test::spec_for(m, alone, "NO_SHARD", f64);
  const StepResult whole = test::step_result(session(), m, whole_spec);
  MeshShape mesh;
  mesh[Axis::pipeline] = row.pipeline;
  mesh[Axis::replicate] = row.replicate, mesh[Axis::shard] = shard;
  mesh[Axis::context] = row.context, mesh[Axis::tensor] = row.tensor;
  m.token_order = program::token_order(mesh, row.method);
  program::JobSpec spec = test::spec_for(m, mesh, row.strategy, f64);
  spec.schedule = program::find_schedule(row.schedule);
  if (row.chunks > 0) spec.schedule.chunks = row.chunks;
  spec.tensor = model::decoder_tensor_plan(m.dims, row.tensor);
  spec.context = row.method;
  spec.recompute.every = row.recompute;
  spec.sharding.reduce.every_micro = row.every_micro;
  const StepResult split = test::step_result(session(), m, spec);
  test::expect_same(whole, split);
  const StepResult again = test::step_result(session(), m, spec);
  EXPECT_EQ(again.loss, split.loss);
  EXPECT_EQ(again.norm, split.norm);
  EXPECT_EQ(again.gradients, split.gradients);
}

// Bits.

struct Setting {
  const char* name;
  const char* strategy = "FULL_SHARD";
  program::Precision precision{DType::bf16, DType::f32, DType::f32, DType::f32, DType::f32};
  void (*set)(TinyModel&, program::JobSpec&) = [](TinyModel&, program::JobSpec&) {};
};

constexpr Setting settings[] = {
    {.name = "bf16, recompute", .set = [](TinyModel&, program::JobSpec& spec) { spec.recompute.every = 1; }},
    {.name = "fp32, gradients reduced once",
     .strategy = "zero2",
     .precision = {DType::f32, DType::f32, DType::f32, DType::f32, DType::f32},
     .set = [](TinyModel&, program::JobSpec& spec) { spec.sharding.reduce.every_micro = false; }},
    {.name = "fp8, 8-bit moments",
     .set =
         [](TinyModel& m, program::JobSpec& spec) {
           m.fp8 = "tensorwise";
           m.dims.hidden_size = 32, m.dims.intermediate_size = 64, m.dims.head_dim = 16;
           spec.optimizer.options.name = "adamw_8bit";
         }},
    {.name = "states on the host",
     .set =
         [](TinyModel&, program::JobSpec& spec) {
           using program::Tier;
           spec.offload.optimizer = spec.offload.master = {Tier::host, 1};
           spec.offload.activations = {Tier::host, 0.4};
         }},
    {.name = "all on NVMe",
     .strategy = "zero1",
     .set =
         [](TinyModel&, program::JobSpec& spec) {
           using program::Tier;
           program::OffloadOptions& o = spec.offload;
           o.parameters = o.gradients = o.optimizer = o.master = o.activations = {Tier::nvme, 1};
         }},
};

std::vector<double> losses_of(const Setting& setting, const char* schedule, int pipeline) {
  TinyModel m;
  m.dims.num_hidden_layers = 4;
  m.global = 4 * (session().size() / pipeline);
  MeshShape mesh;
  mesh[Axis::pipeline] = pipeline, mesh[Axis::shard] = session().size() / pipeline;
  program::JobSpec spec = test::spec_for(m, mesh, setting.strategy, setting.precision);
  spec.schedule = program::find_schedule(schedule);
  setting.set(m, spec);
  job::WorkerOptions options{.poison = true};
  options.nvme.paths = {std::filesystem::temp_directory_path()};
  job::Worker worker(session(), m.graph(spec.precision.parameters), spec, options);
  return test::train_losses(worker, m, spec.micro_batches, 3, [](int, auto run) { run(); });
}

TEST(Pipelines, SchedulesGiveEachOthersBits) {
  if (session().size() > 2) GTEST_SKIP() << "for 2 ranks";
  kernels::initialize_backend();
  constexpr std::array others{"gpipe", "zb-h1", "zb-v", "zb-h2", "interleaved", "dualpipe-v"};
  std::size_t number = 0;
  for (const Setting& setting : settings) {
    const std::vector<double> expected = losses_of(setting, "1f1b", 2);
    ++number;
    for (const char* schedule : {others[number % others.size()], others[(number + 3) % others.size()]})
      EXPECT_EQ(losses_of(setting, schedule, 2), expected) << setting.name << ", " << schedule;
    for (const double value : expected) EXPECT_TRUE(std::isfinite(value)) << setting.name;
  }
}

/// Of a parameter that two stages have, each steps its own copy: nothing is rounded otherwise there.
TEST(Pipelines, TiedEmbeddingsAreTheSameOnBothStages) {
  if (session().size() > 4) GTEST_SKIP() << "for 2 or 4 ranks";
  kernels::initialize_backend();
  TinyModel m;
  m.dims.num_hidden_layers = 4;
  m.dims.tie_word_embeddings = true;
  MeshShape mesh;
  mesh[Axis::pipeline] = 2, mesh[Axis::shard] = session().size() / 2;
  m.global = 3 * mesh[Axis::shard];
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

INSTANTIATE_TEST_SUITE_P(Rows, Pipeline, testing::ValuesIn(rows), name_of);

}  // namespace
}  // namespace ztrain::pipeline_test
