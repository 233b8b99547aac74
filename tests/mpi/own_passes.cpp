// Two passes that live here alone. Tensor parallelism of a feed-forward as a pass over the forward graph, and
// an activation that is evicted to host memory and fetched back as a pass over the Program: the engine knows
// of neither.

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/launch/backend.hpp"
#include "program/ir/op_types.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::own_passes_test {
namespace {

using model::Graph;
using program::Op;
using program::Program;
using program::Tensor;
using program::TensorId;
using test::session;
using test::TinyModel;

/// Cuts a parameter and the value that stands for it along dim.
void slice(Graph& graph, const std::string& name, int dim, int parts) {
  for (model::Parameter& p : graph.parameters) {
    if (p.name != name) continue;
    p.slice_dim = dim;
    p.slice_parts = parts;
    graph.value(p.value).shape[static_cast<std::size_t>(dim)] /= parts;
  }
}

/// Megatron's feed-forward: gate and up by columns, down by rows, one sum behind it.
void split_feed_forward(Graph& graph, const Coordinate& at) {
  const int parts = at.mesh()[Axis::tensor];
  const std::string mlp = "model.layers.1.mlp";
  slice(graph, mlp + ".gate_proj.weight", 0, parts);
  slice(graph, mlp + ".up_proj.weight", 0, parts);
  slice(graph, mlp + ".down_proj.weight", 1, parts);
  for (const char* name : {".gate_proj", ".up_proj", ".swiglu"})
    graph.value(graph.nodes[graph.node_index(mlp + name)].outputs[0]).shape[1] /= parts;

  const auto added = [&](model::ValueId like) {
    graph.values.push_back(graph.value(like));
    return static_cast<model::ValueId>(graph.values.size()) - 1;
  };
  const std::size_t gate = graph.node_index(mlp + ".gate_proj"), up = graph.node_index(mlp + ".up_proj");
  const model::ValueId input = graph.nodes[gate].inputs[0], entered = added(input);
  graph.nodes[gate].inputs[0] = graph.nodes[up].inputs[0] = entered;
  const int unit = graph.nodes[gate].block;
  const Attributes axes = program::axes_attribute(Axis::tensor);
  const auto place = [&](std::size_t where, model::Node node) {
    graph.nodes.insert(graph.nodes.begin() + static_cast<std::ptrdiff_t>(where), std::move(node));
  };
  place(std::min(gate, up), {"copy_to_axis", mlp + ".enter", {input}, {entered}, axes, unit, ""});
  const std::size_t down = graph.node_index(mlp + ".down_proj");
  const model::ValueId sum = graph.nodes[down].outputs[0], partial = added(sum);
  graph.nodes[down].outputs[0] = partial;
  place(down + 1, {"reduce_from_axis", mlp + ".leave", {partial}, {sum}, axes, unit, ""});
}

TensorId add_like(Program& p, TensorId like, const char* suffix, program::Tier tier) {
  Tensor t = p.tensor(like);
  t.name += suffix;
  t.tier = tier;
  return p.add(std::move(t));
}

Op copy_op(TensorId from, TensorId to, program::ActionKind kind) {
  Op op;
  op.type = "copy";
  op.name = "activation";
  op.inputs = {from};
  op.outputs = {to};
  op.stream = program::Stream::copy;
  op.action = {kind, -1, -1};
  return op;
}

/// What the feed-forward's down projection keeps for backward goes to the host after its last use in forward,
/// and comes back before its first use in backward.
void evict_activation(Program& p) {
  const auto is_use = [](const Op& op) {
    return op.type == "linear_grad_weight" && op.name == "model.layers.0.mlp.down_proj";
  };
  const auto found = std::find_if(p.ops.begin(), p.ops.end(), is_use);
  if (found == p.ops.end()) return;  // the load and evaluation programs have no backward
  const TensorId kept = found->inputs[1];
  const auto reads = [&](const Op& op) { return std::count(op.inputs.begin(), op.inputs.end(), kept) > 0; };
  std::size_t last_forward = 0, first_backward = p.ops.size();
  for (std::size_t i = 0; i < p.ops.size(); ++i) {
    if (!reads(p.ops[i])) continue;
    if (p.ops[i].action.kind == program::ActionKind::forward)
      last_forward = i;
    else
      first_backward = std::min(first_backward, i);
  }
  const TensorId host = add_like(p, kept, ".host", program::Tier::host);
  const TensorId back = add_like(p, kept, ".back", program::Tier::device);
  for (std::size_t i = first_backward; i < p.ops.size(); ++i)
    std::replace(p.ops[i].inputs.begin(), p.ops[i].inputs.end(), kept, back);
  const auto at = [&](std::size_t i) { return p.ops.begin() + static_cast<std::ptrdiff_t>(i); };
  p.ops.insert(at(first_backward), copy_op(host, back, program::ActionKind::fetch));
  p.ops.insert(at(last_forward + 1), copy_op(kept, host, program::ActionKind::evict));
}

class OwnPasses : public testing::Test {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }
};

TEST_F(OwnPasses, SplittingAFeedForwardOverTensorMatchesTheWholeModel) {
  if (session().size() < 2) GTEST_SKIP() << "needs 2 ranks";
  TinyModel m;
  m.global = 4;
  MeshShape whole, split;
  whole[Axis::shard] = session().size();
  split[Axis::shard] = session().size() / 2;
  split[Axis::tensor] = 2;
  const auto expected = test::losses_of(
      session(), m, test::spec_for(m, whole, "FULL_SHARD", test::precision_of(DType::f64)), 6);
  for (const char* strategy : {"NO_SHARD", "FULL_SHARD"}) {
    auto spec = test::spec_for(m, split, strategy, test::precision_of(DType::f64));
    spec.graph_passes.push_back(split_feed_forward);
    const auto losses = test::losses_of(session(), m, spec, 6);
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], expected[i], 1e-9) << strategy << " " << i;
  }
}

TEST_F(OwnPasses, EvictingAnActivationChangesNoBit) {
  TinyModel m;
  m.global = 2 * session().size();
  MeshShape mesh;
  mesh[Axis::shard] = session().size();
  const auto plain = test::spec_for(m, mesh, "FULL_SHARD", test::precision_of(DType::f32));
  auto evicting = plain;
  evicting.program_passes.push_back(evict_activation);
  for (const bool poison : {false, true})
    EXPECT_EQ(test::losses_of(session(), m, evicting, 4, poison),
              test::losses_of(session(), m, plain, 4, poison));

  const job::Worker worker(session(), m.graph(DType::f32), evicting);
  EXPECT_GT(worker.memory().transient_bytes(program::Tier::host), 0)
      << "the activation did not go to the host";
}

}  // namespace
}  // namespace ztrain::own_passes_test
