// Residual sums fused with the norms that follow them: which are, and that no bit of a step tells.

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/launch/exec.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::fusion_test {
namespace {

using program::ActionKind;
using program::Op;
using program::Program;
using test::session;
using test::TinyModel;

/// The two ops again that each add_rmsnorm was made of.
void take_apart(Program& program) {
  std::vector<Op> ops;
  for (Op& op : program.ops) {
    if (op.type == "add_rmsnorm") {
      Op sum = op;
      sum.type = "add";
      sum.inputs = {op.inputs[0], op.inputs[1]};
      sum.outputs = {op.outputs[0]};
      sum.attributes = {};
      ops.push_back(std::move(sum));
      op.type = "rmsnorm";
      op.inputs = {op.outputs[0], op.inputs[2]};
      op.outputs.erase(op.outputs.begin());
    }
    ops.push_back(std::move(op));
  }
  program.ops = std::move(ops);
}

std::int64_t count(const Program& program, const char* type, ActionKind kind) {
  return std::ranges::count_if(program.ops,
                               [&](const Op& op) { return op.type == type && op.action.kind == kind; });
}

program::JobSpec spec_of(const TinyModel& model, DType type) {
  MeshShape mesh;
  mesh[Axis::shard] = session().size();
  return test::spec_for(model, mesh, "FULL_SHARD", test::precision_of(type));
}

TEST(Fusion, TakesEveryResidualSumOfForward) {
  TinyModel model;
  model.dims.qk_norm = true;
  const program::JobSpec spec = spec_of(model, DType::bf16);
  const program::Job job = program::compile(model.graph(DType::bf16), spec, 0);
  const std::int64_t residuals = 2 * model.dims.num_hidden_layers;
  EXPECT_EQ(count(job.train(), "add_rmsnorm", ActionKind::forward), residuals * spec.micro_batches);
  EXPECT_EQ(count(job.evaluate(), "add_rmsnorm", ActionKind::forward), residuals);
  EXPECT_EQ(count(job.train(), "add", ActionKind::forward), 0);
  // The first norm has no sum before it; those of heads have another width.
  EXPECT_EQ(count(job.train(), "rmsnorm", ActionKind::forward), (1 + residuals) * spec.micro_batches);
}

struct Variant {
  const char* name;
  DType type = DType::f32;
  program::Recompute recompute = {};
  std::int64_t rank = 0;  ///< of adapters
  std::vector<std::string> trainable = {};
};

TEST(Fusion, ChangesNoBit) {
  kernels::initialize_backend();
  const Variant variants[] = {
      {"fp32"},
      {"bf16", DType::bf16},
      {"all recomputed", DType::bf16, {1, {}}},
      {"every other block recomputed", DType::f32, {2, {}}},
      {"norms recomputed", DType::bf16, {0, {"norm"}}},
      {"sums recomputed", DType::bf16, {0, {"residual"}}},
      {"sums and norms recomputed", DType::bf16, {0, {"norm", "residual", "gate_up"}}},
      {"adapters", DType::f32, {}, 3},
      {"one norm trained", DType::f32, {}, 0, {"model.layers.1.input_layernorm.weight"}},
  };
  for (const Variant& v : variants) {
    SCOPED_TRACE(v.name);
    TinyModel model;
    if (v.rank > 0) {
      model.lora.rank = v.rank;
      model.lora.targets = {"q_proj", "down_proj"};
      model.adapter_std = 0.05;
    }
    model.dims.trainable = v.trainable;
    program::JobSpec spec = spec_of(model, v.type);
    spec.recompute = v.recompute;
    const auto fused = test::losses_of(session(), model, spec, 3, true);
    spec.program_passes.push_back(take_apart);
    EXPECT_EQ(fused, test::losses_of(session(), model, spec, 3, true));
  }
}

}  // namespace
}  // namespace ztrain::fusion_test
