// 8-bit products of layers and tokens that are cut: their scales are those of whole ones, on any mesh.

#include <gtest/gtest.h>

#include "kernels/launch/exec.hpp"
#include "model/tensor_plan.hpp"
#include "program/passes/place.hpp"
#include "tests/support/as_planned.hpp"
#include "tests/support/device_values.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/test_memory.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::fp8_parts_test {
namespace {

using test::session;
using test::TinyModel;

program::Precision mixed() {
  return {DType::bf16, DType::f32, DType::f32, DType::f32, DType::f32};
}

struct Setting {
  const char* scaling;
  bool uneven;  ///< heads and columns
};

class Fp8Parts : public testing::TestWithParam<Setting> {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }
  void SetUp() override {
    const std::string lack = test::lack_of_fp8(std::string_view(GetParam().scaling) == "rowwise");
    if (!lack.empty()) GTEST_SKIP() << lack;
  }
};

/// By parameter; none where it has none.
using Scales = std::vector<std::vector<float>>;

Scales scales_of(const job::Worker& worker) {
  Scales scales;
  for (const program::TensorId t : worker.job().tensors.scales) {
    scales.emplace_back();
    if (t != program::no_tensor)
      scales.back() =
          test::read_elements<float>(worker, t, 0, elements(worker.job().train().tensor(t).shape));
  }
  return scales;
}

/// A job's scales over the whole model, by name, are those that this rank has parts of.
void expect_parts_of(const Scales& whole, const job::Worker& worker) {
  const Scales own = scales_of(worker);
  const auto& parameters = worker.job().layout.parameters();
  const int index = Coordinate(worker.job().train().mesh, worker.job().train().rank)[Axis::tensor];
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const ParameterShape& shape = parameters[p];
    const bool rows = own[p].size() != whole[p].size();
    const auto begin = rows ? static_cast<std::size_t>(shape.slice.begin(shape.shape[0], index)) : 0;
    ASSERT_LE(begin + own[p].size(), whole[p].size()) << parameters[p].name;
    for (std::size_t i = 0; i < own[p].size(); ++i)
      ASSERT_EQ(own[p][i], whole[p][begin + i]) << parameters[p].name << " " << i;
  }
}

TinyModel model_of(const Setting& setting) {
  TinyModel m;
  const bool uneven = setting.uneven;
  m.fp8 = setting.scaling;
  m.dims.hidden_size = 48;
  m.dims.intermediate_size = uneven ? 80 : 64;
  m.dims.attention_bias = true;
  m.dims.head_dim = 16;
  m.dims.num_attention_heads = uneven ? 6 : 4;
  m.dims.num_key_value_heads = uneven ? 3 : 2;
  m.dims.attention_output_bias = true;
  m.sequence = 64;
  m.global = 4;
  return m;
}

TEST_P(Fp8Parts, HaveTheScalesOfTheWhole) {
  const TinyModel m = model_of(GetParam());
  MeshShape copies;
  copies[Axis::replicate] = session().size();
  job::Worker alone(session(), m.graph(DType::bf16), test::spec_for(m, copies, "NO_SHARD", mixed()));
  const auto expected = test::train_losses(alone, m, 4 / session().size(), 3, [](int, auto run) { run(); });
  alone.initialize(11);
  const Scales whole = scales_of(alone);
  using enum model::ContextMethod;
  struct Way {
    int context, tensor;
    bool sequence;
    model::ContextMethod method;
    bool overlap = false;
    int multiple = 16;  ///< what tokens are padded to
  };
  for (const auto& [context, tensor, sequence, method, overlap, multiple] :
       {Way{1, 1, true, gather, false, 96},
        {1, 2, true, gather},
        {1, 2, true, gather, true, 96},
        {1, 2, false, gather},
        {2, 1, true, gather},
        {2, 1, true, heads},
        {2, 2, true, ring}}) {
    if (session().size() % (context * tensor) != 0 || (GetParam().uneven && tensor == 1)) continue;
    MeshShape mesh;
    mesh[Axis::context] = context;
    mesh[Axis::tensor] = tensor;
    mesh[Axis::shard] = session().size() / (context * tensor);
    SCOPED_TRACE(testing::Message() << mesh.describe() << " " << sequence);
    TinyModel cut = m;
    cut.token_order = program::token_order(mesh, method, multiple);
    auto s = test::spec_for(cut, mesh, "FULL_SHARD", mixed());
    if (tensor > 1) s.tensor = model::decoder_tensor_plan(m.dims, tensor);
    s.tensor.sequence_parallel = sequence;
    s.token_multiple = multiple;
    s.overlap_tensor = overlap;
    s.context = method;
    s.recompute.every = sequence ? 1 : 0;
    job::Worker worker(session(), cut.graph(DType::bf16), s, {.poison = true});
    worker.initialize(11);
    expect_parts_of(whole, worker);
    const auto found = test::train_losses(worker, cut, s.micro_batches, 3,
                                          [&](int, auto run) { test::expect_planned_bytes(worker, run); });
    test::expect_planned_memory(worker);
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], (i % 2 == 0 ? 4e-3 : 4e-2) * expected[i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Scales, Fp8Parts,
                         testing::Values(Setting{"tensorwise", false}, Setting{"rowwise", false},
                                         Setting{"tensorwise", true}, Setting{"rowwise", true}),
                         [](const auto& row) {
                           return std::string(row.param.scaling) + (row.param.uneven ? "_unevenly" : "");
                         });

}  // namespace
}  // namespace ztrain::fp8_parts_test
