// Passes that live here alone: an activation is evicted to host memory and fetched back, and a model scales
// values and caps the logits of its head. The engine knows nothing of them.

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/launch/exec.hpp"
#include "program/ops/op_type.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/node_index.hpp"
#include "tests/support/parameter_gradients.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::own_passes_test {
namespace {

using program::Op;
using program::Program;
using program::Tensor;
using program::TensorId;
using test::session;
using test::TinyModel;

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
  op.stream = kind == program::ActionKind::evict ? program::Stream::to_host : program::Stream::to_device;
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

using GraphPass = void (*)(model::Graph&, const Coordinate&);

/// 257 words, which no number of ranks divides.
TEST_F(OwnPasses, ScalesCapsAndActivationsGiveTheSameGradientsOnEveryMesh) {
  TinyModel m;
  m.dims.initializer_range = 0.3;
  m.dims.num_key_value_heads = 4;
  m.global = 4 * session().size();
  const auto result = [&](int tensor, const char* strategy, GraphPass pass) {
    MeshShape mesh;
    mesh[Axis::tensor] = tensor;
    mesh[Axis::shard] = session().size() / tensor;
    program::JobSpec spec = test::spec_for(m, mesh, strategy, test::precision_of(DType::f64));
    spec.tensor = model::decoder_tensor_plan(m.dims, tensor);
    if (pass) spec.graph_passes.emplace_back(pass);
    return test::step_result(session(), m, spec);
  };
  const double plain = result(1, "NO_SHARD", nullptr).loss;
  for (const GraphPass pass : {test::scale_and_cap, test::mix_activations}) {
    const test::StepResult whole = result(1, "NO_SHARD", pass);
    EXPECT_GT(std::abs(whole.loss - plain), 1e-3);
    for (int tensor = 1; tensor <= session().size(); tensor *= 2)
      for (const char* strategy : {"zero2", "FULL_SHARD"}) {
        SCOPED_TRACE(testing::Message() << tensor << " " << strategy);
        test::expect_same(whole, result(tensor, strategy, pass));
      }
  }
}

}  // namespace
}  // namespace ztrain::own_passes_test
