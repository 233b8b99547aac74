// Pipelines, in fp64: with every schedule, and the other axes beside it, the loss, the norm and the gradient
// of each parameter are those of ranks that have the whole model; schedules give each other's bits.

#include <gtest/gtest.h>

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
void with_adapters(TinyModel& m) {
  m.lora = {3, 6, 0, {"q_proj", "o_proj", "down_proj"}};
  m.adapter_std = 0.3;
}
void with_biases(TinyModel& m) {
  m.dims.attention_bias = m.dims.attention_output_bias = m.dims.qk_norm = true;
}
void tied(TinyModel& m) {
  m.dims.tie_word_embeddings = true;
}

constexpr Row rows[] = {
    {.ranks = 2, .schedule = "gpipe", .pipeline = 2},
    {.ranks = 2, .schedule = "1f1b", .pipeline = 2},
    {.ranks = 2, .schedule = "interleaved", .pipeline = 2, .chunks = 2},
    {.ranks = 2, .schedule = "zb-h1", .pipeline = 2},
    {.ranks = 2, .schedule = "zb-h2", .pipeline = 2},
    {.ranks = 2, .schedule = "zb-v", .pipeline = 2},
    {.ranks = 2, .schedule = "dualpipe-v", .pipeline = 2},
    {.ranks = 4, .schedule = "1f1b", .pipeline = 4, .set = with_biases, .recompute = 1, .micros = 6},
    {.ranks = 4, .schedule = "1f1b", .pipeline = 2, .strategy = "zero2", .recompute = 1},
    {.ranks = 4, .schedule = "zb-v", .pipeline = 2, .strategy = "FULL_SHARD", .set = tied},
    {.ranks = 4,
     .schedule = "interleaved",
     .pipeline = 2,
     .context = 2,
     .set = packed,
     .method = ring,
     .micros = 3},
    {.ranks = 4, .schedule = "zb-h1", .pipeline = 2, .tensor = 2, .strategy = "zero1", .set = with_adapters},
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
  m.dims.num_hidden_layers = 5;
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

INSTANTIATE_TEST_SUITE_P(Rows, Pipeline, testing::ValuesIn(rows), name_of);

}  // namespace
}  // namespace ztrain::pipeline_test
