// The Programs of a job one after another: what each needs of the tensors that are kept, and leaves.

#include <gtest/gtest.h>

#include <algorithm>

#include "model/family.hpp"
#include "model/fp8.hpp"
#include "model/trainable.hpp"
#include "program/jobs/inference.hpp"
#include "program/jobs/job_base.hpp"
#include "tests/support/coded_job.hpp"

namespace ztrain::program::successions_test {
namespace {

using test::refusal;

/// Planted: what is done to a Program of a good job.
std::string refused(const char* strategy, std::string_view name, const std::function<void(Program&)>& plant,
                    Precision precision = {DType::bf16, DType::f32, DType::f32, DType::f32, DType::f32}) {
  JobSpec spec = test::spec_on(1, 2, find_strategy(strategy));
  spec.precision = precision;
  Job job = compile(test::small_model(), spec, 0);
  const std::vector<TensorId> there = given(job.load(), job.tensors);
  EXPECT_EQ(refusal([&] { verify_successions(job.programs, there); }), "");
  plant(job.programs.at(name));
  return refusal([&] { verify_successions(job.programs, there); });
}

void drop(Program& p, const std::function<bool(const Op&)>& which) {
  const auto op = std::ranges::find_if(p.ops, which);
  ASSERT_NE(op, p.ops.end());
  p.ops.erase(op);
}

bool gathers_weights(const Program& p, const Op& op) {
  return op.comm.kind == CommKind::all_gather &&
         p.tensor(p.storage(op.outputs[0])).category == Category::parameter;
}

TEST(Successions, ACopyThatNoStepRefreshesIsRefused) {
  const std::string message = refused(
      "zero1", train_name, [](Program& p) { drop(p, [&](const Op& op) { return gathers_weights(p, op); }); });
  EXPECT_NE(
      message.find("of the Program 'train step' reads 'param.model.embed_tokens', which is not there, or "
                   "not up to date, after 'train step'"),
      std::string::npos)
      << message;
}

TEST(Successions, ACopyThatIsMadeBeforeTheStepIsRefused) {
  const std::string message = refused("zero1", train_name, [](Program& p) {
    const auto gather = std::ranges::find_if(p.ops, [&](const Op& op) { return gathers_weights(p, op); });
    ASSERT_NE(gather, p.ops.end());
    std::rotate(p.ops.begin(), gather, gather + 1);
  });
  EXPECT_NE(message.find("not up to date, after 'train step'"), std::string::npos) << message;
}

/// Scales of the weights before the step, codes of those behind it.
TEST(Successions, ScalesThatAreMadeBeforeTheStepAreRefused) {
  config::Model dims = test::small_dims(2, false);
  dims.hidden_size = 80, dims.intermediate_size = 96, dims.head_dim = 16;
  model::Graph graph = model::decoder(dims, {32, DType::bf16, model::Objective::loss});
  model::use_fp8(graph, "tensorwise");
  Job job = compile(graph, test::spec_on(1, 2, find_strategy("FULL_SHARD")), 0);
  Program& step = job.programs.at(train_name);
  const auto of_scales = [](const Op& op) {
    return op.type == "fp8_largest" || op.type == "fp8_scales" || op.name == "scales of weights";
  };
  std::ranges::stable_partition(step.ops, of_scales);
  const std::string message =
      refusal([&] { verify_successions(job.programs, given(job.load(), job.tensors)); });
  EXPECT_NE(message.find("reads 'codes.model.layers.0"), std::string::npos) << message;
}

TEST(Successions, WeightsThatNobodyMadeAreRefused) {
  const std::string message = refused(
      "FULL_SHARD", load_name, [](Program& p) { drop(p, [](const Op& op) { return op.type == "cast"; }); });
  EXPECT_NE(message.find("which is not there, or not up to date, after 'load'"), std::string::npos)
      << message;
  EXPECT_NE(message.find("param.model.embed_tokens"), std::string::npos) << message;
}

TEST(Successions, AnEvaluationThatWritesWeightsIsRefused) {
  const std::string message = refused("FULL_SHARD", evaluation_name, [](Program& p) {
    const auto master = std::ranges::find(p.tensors, Category::master, &Tensor::category);
    ASSERT_NE(master, p.tensors.end());
    Op op = p.ops.back();
    op.inputs.clear();
    op.outputs = {static_cast<TensorId>(master - p.tensors.begin())};
    op.comm = {};
    p.ops.push_back(op);
  });
  EXPECT_NE(message.find("after 'evaluation'"), std::string::npos) << message;
}

/// With every strategy; weights that are their own master, and others, of which some are frozen; codes.
TEST(Successions, HoldForEveryStrategy) {
  config::Model dims = test::small_dims(2, true);
  dims.hidden_size = 80, dims.intermediate_size = 96, dims.head_dim = 16;
  for (const Strategy& strategy : strategies())
    for (const char* fp8 : {"none", "tensorwise", "rowwise"})
      for (const DType master : {DType::bf16, DType::f32}) {
        JobSpec spec = test::spec_on(strategy.within_node ? 2 : 1, 2, strategy);
        spec.precision = {DType::bf16, DType::f32, DType::f32, master, DType::f32};
        model::Graph graph = model::decoder(dims, {32, DType::bf16, model::Objective::loss});
        config::Model choice;
        if (master == DType::f32) choice.frozen = {"model.layers.1.*"};
        model::mark_trainable(graph, choice);
        model::use_fp8(graph, fp8);
        EXPECT_EQ(refusal([&] { compile(graph, spec, 1); }), "") << strategy.name << ' ' << fp8;
      }
}

/// More ranks than a block has quanta: the codes of the last one's shard are gathered like any others.
TEST(Successions, HoldForCodesOfPaddingAlone) {
  for (const char* scaling : {"tensorwise", "rowwise"}) {
    const JobSpec spec = test::in_codes(256, 1, 1, scaling);
    const auto graph = model::decoder(test::dims_of_codes(), {32, DType::bf16, model::Objective::loss});
    EXPECT_EQ(refusal([&] { compile(graph, spec, 255); }), "");
  }
}

TEST(Successions, DecodeNeedsWhatPrefillLeft) {
  const auto graph = [](std::int64_t tokens) {
    return model::decoder(test::small_dims(2, false), {tokens, DType::f32, model::Objective::logits});
  };
  JobSpec spec = test::spec_on(1, 1, find_strategy("FULL_SHARD"), 1);
  spec.precision = {DType::f32, DType::f32, DType::f32, DType::f32, DType::f32};
  Inference job = compile_inference(graph, spec, {50, 16, false}, 0);
  std::vector<TensorId> there = given(job.load(), job.tensors);
  EXPECT_EQ(refusal([&] { verify_successions(job.programs, there); }), "");
  std::erase_if(there, [&](TensorId t) { return job.load().tensor(t).category == Category::cache; });
  EXPECT_NE(refusal([&] { verify_successions(job.programs, there); }).find("'prefill'"), std::string::npos);
}

TEST(Successions, WhatWasNotProvenIsNotRun) {
  const Job job = compile(test::small_model(), test::spec_on(1, 2, find_strategy("zero1")), 0);
  Succession order(job.programs);
  EXPECT_NE(refusal([&] { order.start(train_name); }).find("'train step' cannot run before what it needs"),
            std::string::npos);
  for (const std::string_view name : {load_name, train_name, train_name, evaluation_name, train_name})
    EXPECT_EQ(refusal([&] { order.start(name); }), "") << name;
  order.restart();
  EXPECT_NE(refusal([&] { order.start(evaluation_name); }), "");
  EXPECT_EQ(refusal([&] { order.start(load_name); }), "");
}

TEST(Successions, DecodeDoesNotRunWithoutAPrefill) {
  const auto graph = [](std::int64_t tokens) {
    return model::decoder(test::small_dims(2, false), {tokens, DType::f32, model::Objective::logits});
  };
  JobSpec spec = test::spec_on(1, 1, find_strategy("FULL_SHARD"), 1);
  spec.precision = {DType::f32, DType::f32, DType::f32, DType::f32, DType::f32};
  const Inference job = compile_inference(graph, spec, {50, 16, false}, 0);
  Succession order(job.programs);
  order.start(load_name);
  EXPECT_NE(refusal([&] { order.start(decode_name); }).find("'decode' cannot run after 'load'"),
            std::string::npos);
}

}  // namespace
}  // namespace ztrain::program::successions_test
