// Meshes of all axes at once, in fp64: the loss, the norm and the gradient of each parameter are those of
// ranks that have the whole model and whole sequences; a mesh gives the same bits twice.

#include <gtest/gtest.h>

#include "kernels/launch/backend.hpp"
#include "program/passes/place.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/parameter_gradients.hpp"

namespace ztrain::four_axes_test {
namespace {

using enum model::ContextMethod;
using test::session;
using test::StepResult;
using test::TinyModel;

struct Row {
  int replicate, shard, context, tensor;
  const char* strategy;
  model::ContextMethod method = gather;
  int recompute = 0;
  bool overlap = false;
  void (*set)(TinyModel&) = [](TinyModel&) {};
  int ring = 1;
};

/// Heads that context x tensor = 4 divides.
void by_heads(TinyModel& m) {
  m.dims.num_key_value_heads = 4;
}
void packed(TinyModel& m) {
  m.document_ends = {1, 2, 5, 12};
}
void in_window(TinyModel& m) {
  packed(m);
  m.dims.sliding_window = 3, m.dims.full_attention_layers = 1;
}
void with_adapters(TinyModel& m) {
  m.lora = {3, 6, 0, {"q_proj", "o_proj", "down_proj"}};
  m.adapter_std = 0.3;
}
void with_biases(TinyModel& m) {
  m.dims.attention_bias = m.dims.attention_output_bias = m.dims.qk_norm = true;
  m.dims.tie_word_embeddings = true;
}

void adapters_by_heads(TinyModel& m) {
  by_heads(m);
  with_adapters(m);
}

constexpr Row rows[] = {
    {2, 2, 2, 2, "HYBRID_SHARD", gather, 1, true},
    {2, 2, 2, 2, "zero2", ring, 0, false, packed},
    {2, 2, 2, 2, "FULL_SHARD", heads, 0, true, by_heads},
    {2, 2, 2, 2, "zero1", ring, 1, true, with_adapters},
    {1, 4, 2, 2, "FULL_SHARD", gather, 0, true, with_biases},
    {1, 1, 4, 4, "FULL_SHARD", ring, 0, true},
    {4, 1, 2, 2, "NO_SHARD", heads, 1, false, by_heads},
    {1, 2, 2, 2, "FULL_SHARD", heads, 0, true, by_heads, 2},
    {2, 1, 2, 1, "zero2", heads, 1, false, packed, 4},
    {2, 2, 2, 1, "HYBRID_SHARD", heads, 0, false, with_biases, 2},
    {1, 2, 2, 2, "zero1", heads, 0, false, adapters_by_heads, 2},
    {1, 2, 2, 1, "FULL_SHARD", heads, 1, false, in_window, 2},
    {1, 1, 2, 2, "zero2", heads, 0, true, by_heads, 2},
    {1, 1, 2, 1, "zero1", heads, 0, false, packed, 4},
};

class FourAxes : public testing::TestWithParam<Row> {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }
};

TEST_P(FourAxes, GiveTheGradientsOfTheWholeModel) {
  const Row& row = GetParam();
  MeshShape mesh;
  mesh[Axis::replicate] = row.replicate, mesh[Axis::shard] = row.shard;
  mesh[Axis::ring] = row.ring, mesh[Axis::context] = row.context, mesh[Axis::tensor] = row.tensor;
  const int ranks = mesh.ranks();
  if (session().size() != ranks) GTEST_SKIP() << "for " << ranks << " ranks";
  TinyModel m;
  m.global = ranks;
  row.set(m);
  const program::Precision f64 = test::precision_of(DType::f64);
  MeshShape data;
  data[Axis::shard] = ranks;
  const StepResult whole = test::step_result(session(), m, test::spec_for(m, data, "FULL_SHARD", f64));
  m.token_order = program::token_order(mesh, row.method);
  program::JobSpec spec = test::spec_for(m, mesh, row.strategy, f64);
  spec.tensor = model::decoder_tensor_plan(m.dims, row.tensor);
  spec.context = row.method;
  spec.recompute.every = row.recompute;
  spec.overlap_tensor = row.overlap;
  const StepResult split = test::step_result(session(), m, spec);
  test::expect_same(whole, split);
  const StepResult again = test::step_result(session(), m, spec);
  EXPECT_EQ(again.loss, split.loss);
  EXPECT_EQ(again.norm, split.norm);
  EXPECT_EQ(again.gradients, split.gradients);
}

INSTANTIATE_TEST_SUITE_P(Meshes, FourAxes, testing::ValuesIn(rows));

}  // namespace
}  // namespace ztrain::four_axes_test
