// The Programs of generation: compiled and proven without MPI, on many meshes; what they keep and where.

#include "program/jobs/inference.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "model/kv_cache.hpp"
#include "program/passes/final_passes.hpp"
#include "tests/support/node_index.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::program::inference_test {
namespace {

using test::refusal;

config::Model dims(bool tied) {
  config::Model m = test::small_dims(3, tied);
  m.num_attention_heads = 4;
  m.num_key_value_heads = 2;
  m.head_dim = 10;
  return m;
}

LogitsGraph logits(bool tied = false) {
  return [m = dims(tied)](std::int64_t tokens) {
    return model::decoder(m, {tokens, DType::bf16, model::Objective::logits});
  };
}

JobSpec sharded(int ranks, const char* strategy = "FULL_SHARD") {
  JobSpec spec = test::spec_on(1, ranks, find_strategy(strategy), 1);
  spec.precision = {DType::bf16, DType::bf16, DType::bf16, DType::bf16, DType::bf16};
  return spec;
}

const InferenceOptions options{50, 16, false};

/// Compiles every rank and proves the joint graph of each Program.
void verify_inference(const LogitsGraph& emit, const JobSpec& spec, const InferenceOptions& how) {
  std::vector<Inference> jobs;
  std::vector<std::vector<int>> classes;
  for (int rank = 0; rank < spec.mesh.ranks(); ++rank) {
    jobs.push_back(compile_inference(emit, spec, how, rank));
    classes.push_back({rank});
  }
  std::vector<std::vector<const Program*>> programs;
  for (const Inference& job : jobs) programs.push_back(job.programs.all());
  verify_together(programs, classes);
}

std::size_t count(const Program& p, std::string_view type) {
  return static_cast<std::size_t>(
      std::count_if(p.ops.begin(), p.ops.end(), [&](const Op& op) { return op.type == type; }));
}

TEST(Inference, IsProvenOnManyMeshes) {
  for (const int ranks : {1, 2, 3, 8})
    for (const char* strategy : {"FULL_SHARD", "NO_SHARD"})
      for (const bool tied : {false, true})
        for (const bool every_row : {false, true})
          EXPECT_EQ(refusal([&] {
                      verify_inference(logits(tied), sharded(ranks, strategy), {50, 16, every_row});
                    }),
                    "")
              << strategy << " on " << ranks;
}

/// Nothing is gathered for a token where no axis shards; a rank has its heads' cache.
TEST(Inference, ByHeadsOverRanksSendsNoWeights) {
  for (const bool tied : {false, true})
    for (const int shard : {1, 2}) {
      JobSpec spec = sharded(shard);
      spec.mesh[Axis::tensor] = 2;
      spec.tensor = model::inference_plan(model::decoder_tensor_plan(dims(tied), 2), dims(tied));
      EXPECT_EQ(refusal([&] { verify_inference(logits(tied), spec, options); }), "") << tied << " " << shard;
      const Inference job = compile_inference(logits(tied), spec, options, 1);
      const Program& decode = job.programs.at(decode_name);
      EXPECT_EQ(count(decode, "all_gather") == 0, shard == 1);
      EXPECT_EQ(count(decode, "all_reduce"), 2 * 3 + (tied ? 0 : 1)) << "of each block, and of the embedding";
      std::int64_t cache = 0;
      for (const Tensor& t : decode.tensors)
        if (t.category == Category::cache) cache += t.bytes();
      EXPECT_EQ(cache, 2 * 3 * 50 * 10 * 2) << "keys and values of one head of two, in three layers";
    }
}

/// A rank of a pipeline has the weights and the cache of its own layers, and sends what a token is at their
/// end.
TEST(Inference, ByLayersOverRanksSendsNoWeights) {
  for (const bool tied : {false, true})
    for (const auto [pipeline, shard, tensor] : {std::array{3, 1, 1}, {2, 2, 1}, {2, 1, 2}}) {
      JobSpec spec = sharded(shard);
      spec.mesh[Axis::pipeline] = pipeline;
      spec.mesh[Axis::tensor] = tensor;
      if (tensor > 1)
        spec.tensor = model::inference_plan(model::decoder_tensor_plan(dims(tied), 2), dims(tied));
      EXPECT_EQ(refusal([&] { verify_inference(logits(tied), spec, options); }), "")
          << tied << " " << pipeline;
      std::int64_t cache = 0;
      for (int stage = 0; stage < pipeline; ++stage) {
        const Inference job = compile_inference(logits(tied), spec, options, stage * shard * tensor);
        const Program& decode = job.programs.at(decode_name);
        EXPECT_EQ(count(decode, "all_gather") == 0, shard == 1);
        EXPECT_EQ(count(decode, "send"), stage + 1 < pipeline ? 1 : 0);
        EXPECT_EQ(count(decode, "recv"), stage > 0 ? 1 : 0);
        EXPECT_EQ(count(decode, "broadcast"), 1);
        for (const Tensor& t : decode.tensors)
          if (t.category == Category::cache) cache += t.bytes();
      }
      EXPECT_EQ(cache, 2 * 3 * 2 * 50 * 10 * 2 / tensor) << "keys and values of two heads, in three layers";
    }
}

TEST(Inference, ProgramsShareWhatTheyKeep) {
  for (const int ranks : {1, 3}) {
    const Inference job = compile_inference(logits(), sharded(ranks), options, ranks - 1);
    for (const Program* p : job.programs.all()) {
      EXPECT_EQ(p->plan[0].persistent_bytes, job.load().plan[0].persistent_bytes);
      for (std::size_t t = 0; t < job.load().tensors.size(); ++t) {
        EXPECT_EQ(p->tensors[t].name, job.load().tensors[t].name);
        EXPECT_EQ(p->tensors[t].persistent, job.load().tensors[t].persistent);
        EXPECT_EQ(p->tensors[t].address, job.load().tensors[t].address) << p->tensors[t].name;
      }
    }
  }
}

TEST(Inference, CachesAreWrittenAndReadInPlace) {
  const Inference job = compile_inference(logits(), sharded(2), options, 0);
  for (const auto& [name, fed] : {std::pair(prefill_name, job.prefill), std::pair(decode_name, job.decode)}) {
    const Program& p = job.programs.at(name);
    EXPECT_EQ(count(p, "attention"), 0u);
    EXPECT_EQ(count(p, "attention_cached"), 3u);
    EXPECT_EQ(count(p, "cache_append"), 6u);
    for (const Op& op : p.ops) {
      if (op.type != "cache_append") continue;
      EXPECT_EQ(op.inputs[2], op.outputs[0]);
      const Tensor& cache = p.tensor(op.outputs[0]);
      EXPECT_TRUE(cache.persistent);
      EXPECT_EQ(cache.category, Category::cache);
      EXPECT_EQ(cache.shape, (Shape{2 * 50, 10}));
      EXPECT_EQ(p.tensor(op.inputs[0]).shape, (Shape{fed.rows, 20}));
      EXPECT_EQ(op.inputs[1], fed.cache_begin);
    }
  }
  EXPECT_EQ(job.prefill.rows, 16);
  EXPECT_EQ(job.decode.rows, 1);
  EXPECT_EQ(job.decode.index, no_tensor) << "of one row there is nothing to select";
}

TEST(Inference, LogitsOfOneRowOrOfAll) {
  const auto shape = [](bool every_row) {
    const Inference job = compile_inference(logits(), sharded(1), {50, 16, every_row}, 0);
    EXPECT_EQ(job.programs.at(decode_name).tensor(job.decode.logits).shape, (Shape{1, 257}));
    EXPECT_EQ(count(job.programs.at(prefill_name), "select_row"), every_row ? 0u : 1u);
    return job.programs.at(prefill_name).tensor(job.prefill.logits).shape;
  };
  EXPECT_EQ(shape(false), (Shape{1, 257}));
  EXPECT_EQ(shape(true), (Shape{16, 257}));
}

TEST(Inference, WeightsAreHeldOnceAndInPartsOfThem) {
  const auto weights = [](int ranks) {
    const Inference job = compile_inference(logits(), sharded(ranks), options, 0);
    std::int64_t bytes = 0;
    for (const Tensor& t : job.load().tensors)
      if (t.persistent && t.base == no_tensor)
        bytes += t.category == Category::parameter || t.category == Category::master ? t.bytes() : 0;
    return bytes;
  };
  std::int64_t parameters = 0;
  for (const model::Parameter& p : logits()(1).parameters) parameters += elements(p.shape);
  EXPECT_GE(weights(1), 2 * parameters);
  EXPECT_LE(weights(1), 2 * (parameters + 40 * 256)) << "more than one copy";
  EXPECT_LE(weights(8), weights(1) / 8 + 40 * 256 * 2);
}

TEST(Inference, ADroppedDependencyIsRefused) {
  Inference job = compile_inference(logits(), sharded(2), options, 0);
  Program& p = job.programs.at(decode_name);
  const auto waits = [&](const Op& op) {
    return op.stream == Stream::compute && !op.after.empty() && p.op(op.after.back()).type == "all_gather";
  };
  std::find_if(p.ops.begin(), p.ops.end(), waits)->after.clear();
  EXPECT_NE(refusal([&] { verify_rank(p); }).find("all_gather"), std::string::npos);
}

TEST(KeyValueCache, KeepsWhatAttentionIsToldOfWindowsAndHeads) {
  model::Graph graph = logits()(4);
  for (model::Node& node : graph.nodes)
    if (node.op == "attention") node.attributes.set("window", std::int64_t{7});
  model::add_kv_cache(graph, 9);
  const model::Node& node = graph.nodes[test::node_index(graph, "model.layers.1.self_attn.attention")];
  EXPECT_EQ(node.op, "attention_cached");
  EXPECT_EQ(node.attributes.integer("window"), 7);
  EXPECT_EQ(node.attributes.integer("kv_heads"), 2);
  EXPECT_EQ(node.outputs.size(), 1u);
}

TEST(KeyValueCache, RefusesWhatItCannotChange) {
  model::Graph graph = logits()(4);
  EXPECT_NE(refusal([&] { model::add_kv_cache(graph, 0); }).find("holds nothing"), std::string::npos);
  model::add_kv_cache(graph, 9);
  EXPECT_NE(refusal([&] { model::add_kv_cache(graph, 9); }).find("no attention"), std::string::npos);
  model::keep_every_row(graph);
  EXPECT_NE(refusal([&] { model::keep_every_row(graph); }).find("selects no token"), std::string::npos);
}

}  // namespace
}  // namespace ztrain::program::inference_test
