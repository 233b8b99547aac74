// Whole jobs, compiled and proven without MPI: every strategy on many meshes, and broken step programs that
// are refused.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/elementwise/record.hpp"
#include "program/passes/final_passes.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::program::job_test {
namespace {

using test::refusal;
using test::small_model;
using test::spec_on;

std::size_t find_op(const Program& p, std::string_view type, std::size_t skip = 0) {
  for (std::size_t i = 0; i < p.ops.size(); ++i)
    if (p.ops[i].type == type && skip-- == 0) return i;
  ADD_FAILURE() << "no op " << type;
  return 0;
}

TEST(Job, EveryStrategyIsProvenOnManyMeshes) {
  for (const Strategy& strategy : strategies())
    for (const auto& [replicate, shard] : {std::pair{1, 1}, {1, 2}, {1, 7}, {2, 3}, {4, 1}})
      for (const bool every : {true, false})
        for (const int recompute : {0, 1, 2}) {
          JobSpec spec = spec_on(replicate, shard, strategy);
          spec.sharding.reduce.every_micro = every;
          spec.recompute.every = recompute;
          EXPECT_EQ(refusal([&] { verify_job(small_model(), spec); }), "")
              << strategy.name << " " << replicate << "x" << shard;
        }
}

TEST(Job, CompilesForAnyRankOfHundreds) {
  for (const int rank : {0, 1, 511}) {
    const Job job = compile(small_model(4, true), spec_on(8, 64, find_strategy("FULL_SHARD"), 3), rank);
    EXPECT_EQ(job.train().rank, rank);
    EXPECT_LE(static_cast<double>(job.train().plan[0].transient_bytes),
              1.02 * static_cast<double>(job.train().plan[0].live_bytes));
  }
}

TEST(Job, AnEvaluationKeepsWeightsAlone) {
  for (const int shard : {1, 4}) {
    JobSpec spec = spec_on(1, shard, find_strategy("FULL_SHARD"));
    const std::int64_t trained = persistent_bytes(compile(small_model(), spec, 0).load())[0];
    spec.kind = JobKind::evaluation;
    spec.micro_batches = 1;
    spec.precision = {DType::bf16, DType::bf16, DType::bf16, DType::bf16, DType::bf16};
    const Job job = compile(small_model(), spec, 0);
    EXPECT_FALSE(job.trains());
    EXPECT_EQ(job.programs.all().size(), 2U);
    std::set<Category> kept;
    std::int64_t weights = 0;
    for (const Tensor& t : job.load().tensors) {
      if (t.persistent && t.base == no_tensor) kept.insert(t.category);
      if (t.persistent && t.category == Category::parameter) weights += t.bytes();
    }
    EXPECT_EQ(kept, (std::set{Category::parameter, Category::scalar, Category::input}));
    EXPECT_LT(6 * weights, trained) << "fp32 masters and moments, and weights in bf16";
    EXPECT_EQ(refusal([&] { verify_job(small_model(), spec); }), "");
  }
}

/// The sizes of the workspaces of ops of this type, over the step and the evaluation.
std::set<std::int64_t> workspaces(const Job& job, std::string_view type) {
  std::set<std::int64_t> sizes;
  for (const Program* p : {&job.train(), &job.evaluate()})
    for (const Op& op : p->ops)
      for (const TensorId t : op.outputs)
        if (op.type == type && p->tensor(t).category == Category::workspace)
          sizes.insert(p->tensor(t).bytes());
  return sizes;
}

TEST(Job, ReservesTheWorkspacesOfItsTarget) {
  JobSpec spec = spec_on(1, 2, find_strategy("FULL_SHARD"));
  const std::set<std::int64_t> cuda{gemm_cuda_workspace_bytes};
  for (const Target target : {Target::cpu, Target::cuda}) {
    spec.target = target;
    const Job job = compile(small_model(), spec, 0);
    EXPECT_EQ(job.train().target, target);
    for (const char* const type : {"linear", "linear_grad_input", "linear_grad_weight"}) {
      const std::set<std::int64_t> found = workspaces(job, type);
      if (target == Target::cuda) {
        EXPECT_EQ(found, cuda) << type;
      } else {  // the library's part, and panels of this model's size
        EXPECT_GT(*found.begin(), gemm_base_workspace_bytes) << type;
        EXPECT_LT(*found.rbegin(), gemm_base_workspace_bytes + (4 << 20)) << type;
      }
    }
    for (const char* const type : {"head_loss", "head_loss_grad"})
      EXPECT_GE(*workspaces(job, type).begin(), *workspaces(job, "linear").begin()) << type;
  }
}

TEST(Job, ProductsInHalfPrecisionNeedNoPanelsOnGpus) {
  for (const DType out : {DType::f16, DType::f32})
    EXPECT_EQ(gemm_workspace_bytes(4096, 14336, 4096, DType::f16, out, Target::cuda),
              gemm_cuda_workspace_bytes);
  // Whatever the shape, a panel of A, one of B and one of C.
  for (const DType type : {DType::bf16, DType::f16}) {
    const std::int64_t cpu = gemm_workspace_bytes(4096, 14336, 4096, type, type, Target::cpu);
    EXPECT_EQ(cpu, gemm_workspace_bytes(512, 1024, 1024, type, type, Target::cpu));
    EXPECT_GT(cpu, gemm_base_workspace_bytes + (8 << 20));
    EXPECT_LT(cpu, gemm_base_workspace_bytes + (9 << 20));
  }
  EXPECT_EQ(gemm_workspace_bytes(4096, 14336, 4096, DType::f32, DType::f32, Target::cpu),
            gemm_base_workspace_bytes);
}

TEST(Job, HeldUnitsAreNotGatheredAgain) {
  const auto gathers = [](const char* strategy, int micros) {
    const Job job = compile(small_model(3), spec_on(1, 4, find_strategy(strategy), micros), 0);
    return std::count_if(job.train().ops.begin(), job.train().ops.end(), [](const Op& op) {
      return op.type == "all_gather" && op.action.kind == ActionKind::gather && op.action.micro >= 0;
    });
  };
  const int units = 5;  // embedding, three blocks, head
  EXPECT_EQ(gathers("SHARD_GRAD_OP", 1), units);
  EXPECT_EQ(gathers("SHARD_GRAD_OP", 3), units) << "kept over micro-batches";
  EXPECT_EQ(gathers("FULL_SHARD", 1), 2 * units - 1 - 1)
      << "the head is held, and the embedding has no use in backward";
  EXPECT_EQ(gathers("zero2", 2), 0);
}

TEST(Job, GradientsOfShardedStrategiesLiveShorter) {
  const auto peak = [](const char* strategy) {
    return compile(small_model(8), spec_on(1, 4, find_strategy(strategy), 1), 0)
        .train()
        .plan[0]
        .transient_bytes;
  };
  EXPECT_LT(peak("FULL_SHARD"), peak("NO_SHARD"));
  EXPECT_LT(peak("FULL_SHARD"), peak("SHARD_GRAD_OP"));
}

TEST(BrokenJob, DroppedDependencyIsRefused) {
  Job job = compile(small_model(), spec_on(1, 2, find_strategy("FULL_SHARD")), 0);
  // The first op that waits for a gather no longer does.
  Program& train = job.programs.at(train_name);
  for (Op& op : train.ops)
    if (op.stream == Stream::compute && !op.after.empty() && train.op(op.after.back()).type == "all_gather") {
      op.after.clear();
      break;
    }
  const std::string message = refusal([&] { verify_rank(job.train()); });
  EXPECT_NE(message.find("all_gather"), std::string::npos) << message;
  EXPECT_NE(message.find("embedding model.embed_tokens"), std::string::npos) << message;
}

TEST(BrokenJob, EarlyReleaseIsRefused) {
  Job job = compile(small_model(), spec_on(1, 2, find_strategy("FULL_SHARD")), 0);
  const std::size_t release = find_op(job.train(), "release", 1);
  const TensorId gathered = job.train().ops[release].inputs[0];
  ASSERT_EQ(job.train().tensor(gathered).name, "gathered.model.layers.0");
  job.programs.at(train_name).tensor(gathered).last -= 3;
  const std::string message = refusal([&] { verify_rank(job.train()); });
  EXPECT_NE(message.find("linear model.layers.0.mlp.down_proj"), std::string::npos) << message;
  EXPECT_NE(message.find("all_gather model.layers.0"), std::string::npos) << message;
}

/// Of an embedding that is the head too there are two gradients; the second adds to the first.
TEST(BrokenJob, AGradientThatErasesAnotherIsRefused) {
  int erased = 0;
  const Program good = compile(model::decoder(test::small_dims(2, true), {32, DType::bf16, {}}),
                               spec_on(1, 2, find_strategy("FULL_SHARD")), 0)
                           .train();
  for (std::size_t i = 0; i < good.ops.size(); ++i) {
    if (!good.ops[i].attributes.integer("accumulate", 0) || good.ops[i].communicates()) continue;
    Program bad = good;
    bad.ops[i].attributes.set("accumulate", std::int64_t{0});
    for (const TensorId t : bad.ops[i].outputs) std::erase(bad.ops[i].inputs, t);
    const std::string said = refusal([&] { verify_rank(bad); });
    EXPECT_NE(said.find(" overwrites '"), std::string::npos)
        << describe(good, static_cast<OpId>(i)) << ": " << said;
    ++erased;
  }
  EXPECT_GT(erased, 0);
}

/// Between the gradients of a unit, and in rows that another rank computes with, there are zeros.
TEST(BrokenJob, GapsThatAreNotZeroedAndGradientsThatAreAreRefused) {
  JobSpec spec = spec_on(1, 2, find_strategy("FULL_SHARD"));
  spec.mesh[Axis::tensor] = 4;  // of 5 heads of keys
  spec.tensor = model::decoder_tensor_plan(test::small_dims(2, false), 4);
  const Program good = compile(small_model(), spec, 1).train();
  const std::size_t i = find_op(good, ZeroGaps::op, 1);
  const std::vector<Elements> gaps = record_of<ZeroGaps>(good.ops[i].attributes).gaps;
  const auto with = [&](std::size_t which, Elements gap) {
    Program bad = good;
    edit<ZeroGaps>(bad.ops[i].attributes, [&](ZeroGaps& zero) { zero.gaps[which] = gap; });
    return refusal([&] { verify_rank(bad); });
  };
  for (std::size_t g = 0; g < gaps.size(); ++g) {
    EXPECT_NE(with(g, {gaps[g].begin, gaps[g].count - 1}).find("before any op writes byte"),
              std::string::npos);
    EXPECT_NE(with(g, {gaps[g].begin + 1, gaps[g].count - 1}).find("before any op writes byte"),
              std::string::npos);
    EXPECT_NE(with(g, {gaps[g].begin - 1, gaps[g].count + 1}).find("it is lost"), std::string::npos);
  }
  EXPECT_EQ(with(0, gaps[0]), "");
}

TEST(BrokenJob, SwappedCollectivesOnOneRankAreRefused) {
  const JobSpec spec = spec_on(1, 2, find_strategy("FULL_SHARD"));
  const Program good = compile(small_model(), spec, 0).train();
  Program bad = compile(small_model(), spec, 1).train();
  std::swap(bad.ops[find_op(bad, "all_gather", 0)], bad.ops[find_op(bad, "all_gather", 1)]);
  const std::string message = refusal([&] { verify_no_deadlock({&good, &bad}, {{0}, {1}}); });
  EXPECT_NE(message.find("rank 1"), std::string::npos) << message;
  EXPECT_NE(message.find("all_gather"), std::string::npos) << message;
}

TEST(BrokenJob, CycleOverTwoStreamsIsRefused) {
  const JobSpec spec = spec_on(1, 2, find_strategy("FULL_SHARD"));
  const Program good = compile(small_model(), spec, 0).train();
  Program bad = compile(small_model(), spec, 1).train();
  // Rank 1 starts no reduction before the partial sums of all ranks have arrived; rank 0 sends its own after
  // it.
  const auto at = [&](std::size_t i) { return bad.ops.begin() + static_cast<std::ptrdiff_t>(i); };
  const std::size_t reduce = find_op(bad, "reduce_scatter");
  const auto partials = std::find_if(bad.ops.begin(), bad.ops.end(),
                                     [](const Op& op) { return op.name == "partials" && op.communicates(); });
  ASSERT_LT(at(reduce), partials);
  const Op moved = *partials;
  bad.ops.erase(partials);
  bad.ops.insert(at(reduce), moved);
  for (Op& op : bad.ops) op.after.clear();
  bad.ops[reduce + 1].after = {static_cast<OpId>(reduce)};
  const std::string message = refusal([&] { verify_no_deadlock({&good, &bad}, {{0}, {1}}); });
  EXPECT_NE(message.find("deadlock"), std::string::npos) << message;
  EXPECT_NE(message.find("reduce_scatter"), std::string::npos) << message;
  EXPECT_NE(message.find("partials"), std::string::npos) << message;
}

}  // namespace
}  // namespace ztrain::program::job_test
