// Cases of pipelines that others got wrong.

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/elementwise/record.hpp"
#include "model/trainable.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::program::pipeline_cases_test {
namespace {

using test::refusal;
using test::small_model;

JobSpec staged(const char* schedule, int ranks, const char* strategy) {
  JobSpec spec = test::spec_on(1, 1, find_strategy(strategy), 4);
  spec.mesh[Axis::pipeline] = ranks;
  spec.schedule = find_schedule(schedule);
  return spec;
}

TEST(PipelineCases, WhatIsSentIsNotFreedBeforeItsSend) {
  for (const char* schedule : {"1f1b", "zb-v"}) {
    JobSpec spec = staged(schedule, 2, "FULL_SHARD");
    spec.program_passes.emplace_back([](Program& p) {
      const auto send =
          std::ranges::find_if(p.ops, [](const Op& op) { return op.comm.kind == CommKind::send; });
      if (send == p.ops.end()) return;
      const auto freed = std::find_if(send, p.ops.end(), [&](const Op& op) {
        return op.type == Release::op && op.inputs == send->inputs;
      });
      std::rotate(send, freed, freed + 1);
    });
    const std::string said = refusal([&] { verify_job(small_model(4), spec); });
    EXPECT_NE(said.find("released it"), std::string::npos) << said;
  }
}

/// Back and forth the first rank has both ends of the model, in its memory too.
TEST(PipelineCases, EmbeddingAndHeadOfOneRankAreCounted) {
  const model::Graph graph = small_model(8);
  for (const char* schedule : {"zb-v", "dualpipe-v"}) {
    for (int rank = 0; rank < 2; ++rank) {
      const Job job = compile(graph, staged(schedule, 2, "NO_SHARD"), rank);
      std::int64_t elements_of_rank = 0;
      for (const model::Parameter& p : job.graph.parameters) {
        const bool end = p.name == "model.embed_tokens.weight" || p.name == "lm_head.weight" ||
                         p.name == "model.norm.weight";
        if (end) {
          EXPECT_EQ(p.elsewhere, rank == 1) << p.name;
        }
        if (!p.elsewhere) elements_of_rank += elements(job.graph.value(p.value).shape);
      }
      std::int64_t bytes = 0;
      for (const Tensor& t : job.train().tensors)
        if (t.persistent && t.base == no_tensor && t.category == Category::parameter) bytes += t.bytes();
      EXPECT_GE(bytes, 2 * elements_of_rank) << "bf16";
      EXPECT_LT(bytes, 2 * elements_of_rank * 11 / 10) << "and some padding";
    }
  }
}

TEST(PipelineCases, StagesWithoutATrainedParameterAreProven) {
  for (const char* schedule : {"1f1b", "gpipe", "interleaved", "zb-h1", "zb-v"})
    for (const char* trained : {"model.layers.0.*", "model.layers.7.*", "lm_head.weight"})
      for (const char* strategy : {"FULL_SHARD", "zero1"}) {
        model::Graph graph = small_model(8);
        config::Model choice;
        choice.trainable = {trained};
        model::mark_trainable(graph, choice);
        EXPECT_EQ(refusal([&] { verify_job(graph, staged(schedule, 4, strategy)); }), "")
            << schedule << ", " << trained << ", " << strategy;
      }
}

}  // namespace
}  // namespace ztrain::program::pipeline_cases_test
