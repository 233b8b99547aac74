// An op in a folder of its own, and families and a schedule that ztrain lacks, train on every mesh and are
// checked like its own.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "config/architectures.hpp"
#include "config/fields/model_keys.hpp"
#include "kernels/communication/record.hpp"
#include "kernels/launch/exec.hpp"
#include "kernels/rope/record.hpp"
#include "program/jobs/pass_list.hpp"
#include "program/passes/final_passes.hpp"
#include "tests/additions/geglu/geglu.hpp"
#include "tests/additions/geglu/record.hpp"
#include "tests/additions/geglu/reference.hpp"
#include "tests/additions/rows.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/parameter_gradients.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::additions_test {
namespace {

using test::session;
using test::StepResult;
using test::TinyModel;

class Additions : public testing::Test {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }

  /// Gated by GeGLU, and with the schedule that the table has of this name.
  static program::JobSpec spec(const TinyModel& m, int tensor, const char* strategy, const char* schedule) {
    MeshShape mesh;
    mesh[Axis::tensor] = tensor;
    mesh[Axis::shard] = session().size() / tensor;
    program::JobSpec spec = test::spec_for(m, mesh, strategy, test::precision_of(DType::f64));
    if (tensor > 1) spec.tensor = model::decoder_tensor_plan(m.dims, tensor);
    spec.graph_passes.push_back([](model::Graph& graph, const Coordinate&) { model::gate_by_geglu(graph); });
    spec.schedule = program::find_schedule(schedule);
    return spec;
  }
};

TEST_F(Additions, TheKernelIsTheFunctionAndItsDerivative) {
  test::TestExec exec;
  const test::Array<double> gate{-7, -1, -0.25, 0, 1e-9, 0.5, 3, 40}, up{2, -1, 0.5, 3, -2, 1, -0.25, 1},
      dy{1, 3, -2, 0.5, 4, -1, 2, 1};
  const auto n = static_cast<std::int64_t>(gate.size());
  test::Array<double> y(8), dgate(8), dup(8);
  const auto view = [&](auto& array) { return Vector<const double>{array.data(), n}; };
  kernels::geglu_forward<double>(*exec, view(gate), view(up), {y.data(), n});
  kernels::geglu_backward<double>(*exec, view(gate), view(up), view(dy), {dgate.data(), n}, {dup.data(), n});
  using kernels::reference::geglu;
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double h = 1e-5, slope = (geglu(gate[i] + h, up[i]) - geglu(gate[i] - h, up[i])) / (2 * h);
    EXPECT_NEAR(y[i], geglu(gate[i], up[i]), 1e-14) << gate[i];
    EXPECT_NEAR(dup[i], dy[i] * geglu(gate[i], 1), 1e-14) << gate[i];
    EXPECT_NEAR(dgate[i], dy[i] * slope, 1e-8) << gate[i];
  }
}

TEST_F(Additions, TheOpGivesTheSameGradientsOnEveryMesh) {
  TinyModel m;
  m.global = 4 * session().size();
  const StepResult whole = test::step_result(session(), m, spec(m, 1, "NO_SHARD", "sequential"));
  program::JobSpec plain = spec(m, 1, "NO_SHARD", "sequential");
  plain.graph_passes.clear();
  EXPECT_GT(std::abs(whole.loss - test::step_result(session(), m, plain).loss), 1e-5);
  for (int tensor = 1; tensor <= session().size(); tensor *= 2)
    for (const char* strategy : {"zero2", "FULL_SHARD"}) {
      SCOPED_TRACE(testing::Message() << tensor << " " << strategy);
      auto cut = spec(m, tensor, strategy, "sequential");
      cut.recompute.every = 1;
      test::expect_same(whole, test::step_result(session(), m, cut));
    }
}

TEST_F(Additions, TheScheduleGivesTheSameBits) {
  TinyModel m;
  m.global = 4 * session().size();
  const auto losses = [&](const char* schedule) {
    return test::losses_of(session(), m, spec(m, 1, "FULL_SHARD", schedule), 2);
  };
  EXPECT_EQ(losses("forwards_first"), losses("sequential"));
}

TEST_F(Additions, TheFamilyIsKnownToTheDeckAndEmitsTheOp) {
  config::Deck deck;
  deck.model = TinyModel().dims;
  deck.model.family = "gated";
  deck.precision.fp8 = "none";
  EXPECT_EQ(config::find_architecture("gated").hf_class, "GatedForCausalLM");
  EXPECT_EQ(config::misfit(deck.model), std::nullopt);
  const model::Graph graph = program::model_graph(deck, {16, DType::f32, model::Objective::loss});
  EXPECT_EQ(std::ranges::count(graph.nodes, Geglu::op, &model::Node::op), deck.model.num_hidden_layers);
}

TEST_F(Additions, TheAttentionOfAFamilyIsThatOfEachLayer) {
  TinyModel m;
  m.dims.family = "capped";
  m.dims.num_hidden_layers = 3;
  std::vector<std::int64_t> windows;
  const model::Graph graph = m.graph(DType::f32);
  for (const model::Node& node : graph.nodes)
    if (node.op == Attention::op) windows.push_back(record_of<Attention>(node.attributes).window);
  EXPECT_EQ(windows, (std::vector<std::int64_t>{5, 0, 5}));
  EXPECT_EQ(std::ranges::count(graph.nodes, Rope::op, &model::Node::op), 4);
}

TEST_F(Additions, TheAttentionOfAFamilyGivesTheSameGradientsOnEveryMesh) {
  TinyModel m;
  m.dims.num_hidden_layers = 3;
  m.document_ends = {3, 10};
  m.global = 4 * session().size();
  using enum model::ContextMethod;
  const auto result = [&](Axis axis, model::ContextMethod method) {
    MeshShape mesh;
    mesh[axis] = session().size();
    program::JobSpec spec = test::spec_for(m, mesh, "zero2", test::precision_of(DType::f64));
    spec.context = method;
    spec.tensor = model::decoder_tensor_plan(m.dims, mesh[Axis::tensor]);
    m.token_order = program::token_order(mesh, method, 1);
    return test::step_result(session(), m, spec);
  };
  const StepResult usual = result(Axis::shard, gather);
  m.dims.family = "capped";
  const StepResult whole = result(Axis::shard, gather);
  EXPECT_GT(std::abs(whole.loss - usual.loss), 1e-5);
  for (const auto& [axis, method] : {std::pair{Axis::tensor, gather}, std::pair{Axis::context, gather},
                                     std::pair{Axis::context, ring}, std::pair{Axis::context, heads}}) {
    SCOPED_TRACE(testing::Message() << "axis " << static_cast<int>(axis) << ", method "
                                    << static_cast<int>(method));
    test::expect_same(whole, result(axis, method));
  }
}

/// Made a sum by hand, its input is refused: a nonlinear op takes no part of one.
TEST_F(Additions, TheCheckRefusesTheOpOnAPartOfASum) {
  if (session().size() == 1) GTEST_SKIP() << "needs an axis of two ranks";
  TinyModel m;
  m.global = 4 * session().size();
  auto spec = Additions::spec(m, session().size(), "FULL_SHARD", "sequential");
  spec.tensor.sequence_parallel = false;
  program::Program step = program::compile(m.graph(DType::f64), spec, 0).train();
  program::verify_placements(step);
  const auto gated = std::ranges::find(step.ops, Geglu::op, &program::Op::type);
  const auto sum = std::ranges::find(step.ops, program::AllReduce::op, &program::Op::type);
  ASSERT_TRUE(gated != step.ops.end() && sum != step.ops.end());
  gated->inputs[Geglu::up] = sum->inputs[program::AllReduce::x];
  try {
    program::verify_placements(step);
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("geglu"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace ztrain::additions_test
