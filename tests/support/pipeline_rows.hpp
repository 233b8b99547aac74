#pragma once
// What tests/mpi/pipeline_pairs.cpp combines: pipelines of 1 to 8 ranks with every other axis, schedules, and
// all that a job on them may have. A row is a level of each factor.

#include <fmt/format.h>

#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "model/tensor_plan.hpp"
#include "program/passes/place.hpp"
#include "tests/support/pairwise.hpp"
#include "tests/support/single_rank.hpp"

namespace ztrain::test::stages {

using model::ContextMethod;
using program::JobSpec;
using program::Tier;

/// Numbers of ranks that rows may be for.
inline constexpr std::array rank_counts{1, 2, 4, 6, 8, 16};

inline constexpr int pipelines[] = {1, 2, 3, 4, 8};
inline constexpr int tensors[] = {1, 2};
struct Context {
  const char* name;
  int ranks;
  ContextMethod method;
};
inline constexpr Context contexts[] = {{"none", 1, ContextMethod::gather},
                                       {"gather", 2, ContextMethod::gather},
                                       {"ring", 2, ContextMethod::ring},
                                       {"heads", 2, ContextMethod::heads}};
struct Copies {
  int replicate, shard;
};
inline constexpr Copies copies[] = {{1, 1}, {1, 2}, {2, 1}};

inline constexpr const char* schedules[] = {"1f1b", "gpipe",  "interleaved", "zb-h1",     "zb-h2",
                                            "zb-v", "v-half", "v-min",       "dualpipe-v"};
inline constexpr const char* strategies[] = {"FULL_SHARD", "SHARD_GRAD_OP", "zero2", "zero1", "NO_SHARD"};

struct Kind {
  const char* name;
  void (*set)(TinyModel&);
};
inline constexpr Kind kinds[] = {
    {"plain", [](TinyModel&) {}},
    {"packed",
     [](TinyModel& m) {
       m.document_ends = {1, 2, 5, 12};
     }},
    {"tied", [](TinyModel& m) { m.dims.tie_word_embeddings = true; }},
    {"adapters",
     [](TinyModel& m) {
       m.lora = {3, 6, 0, {"q_proj", "o_proj", "down_proj"}};
       m.adapter_std = 0.05;
     }},
    {"one layer trained", [](TinyModel& m) { m.dims.trainable = {"model.layers.1.*"}; }},
    {"biases, head norms, tied, packed",
     [](TinyModel& m) {
       m.dims.attention_bias = m.dims.attention_output_bias = true;
       m.dims.qk_norm = m.dims.tie_word_embeddings = true;
       m.document_ends = {7};
     }},
    {"pairs of answers", [](TinyModel& m) { m.pair_loss = "ipo"; }},
    {"rewards", [](TinyModel& m) { m.pair_loss = "reward"; }},
    {"a teacher", [](TinyModel& m) {
       m.teacher = {5, 0.4};
     }}};

/// Of what a rank has, every so many blocks.
inline constexpr int recomputed[] = {0, 1, 2};
inline constexpr int micro_batches[] = {3, 1, 2, 5};

struct Home {
  const char* name;
  void (*set)(program::OffloadOptions&);
};
inline constexpr Home homes[] = {
    {"on the device", [](program::OffloadOptions&) {}},
    {"optimizer on the host",
     [](program::OffloadOptions& o) {
       o.optimizer = o.master = {Tier::host, 1};
     }},
    {"activations on the host",
     [](program::OffloadOptions& o) {
       o.activations = {Tier::host, 0.5};
     }},
    {"all on NVMe", [](program::OffloadOptions& o) {
       o.parameters = o.gradients = o.optimizer = o.master = o.activations = {Tier::nvme, 1};
     }}};

enum Factor : std::size_t {
  pipeline,
  tensor,
  context,
  copy,
  schedule,
  strategy,
  kind,
  types,
  recompute,
  every_micro,
  micros,
  home,
  late
};

/// The first levels of a row are those of its mesh.
inline int ranks_of(const Levels& row) {
  const auto level = [&](const auto& levels, Factor factor) {
    return levels[static_cast<std::size_t>(row[factor])];
  };
  const Copies of = level(copies, copy);
  return level(pipelines, pipeline) * level(tensors, tensor) * level(contexts, context).ranks * of.replicate *
         of.shard;
}

class Row {
  template <class Levels>
  const auto& of(const Levels& levels, Factor factor) const {
    return levels[static_cast<std::size_t>(levels_[factor])];
  }

 public:
  explicit Row(std::vector<int> levels) : levels_(std::move(levels)) {}

  int ranks() const { return ranks_of(levels_); }
  const StepTypes& step_types() const { return of(test::step_types, types); }
  const char* schedule_name() const { return of(schedules, schedule); }
  /// Whether its steps have the bits of those of 1f1b: tied embeddings that one rank has whole are added up
  /// in the order of its turns.
  bool has_the_bits_of_1f1b() const {
    const bool vee = program::find_schedule(schedule_name()).vee;
    return !model(false, true).dims.tie_word_embeddings || (!vee && of(pipelines, pipeline) > 1);
  }

  std::string name() const {
    const Context& c = of(contexts, context);
    return fmt::format(
        "{}, {} x {} x {} x context {} ({}) x tensor {}, {}, {}, {}, recompute {}, every micro-batch {}, {} "
        "micro-batches, {}, late weights {}",
        schedule_name(), of(pipelines, pipeline), of(copies, copy).replicate, of(copies, copy).shard, c.ranks,
        c.name, of(tensors, tensor), of(strategies, strategy), of(kinds, kind).name, step_types().name,
        of(recomputed, recompute), levels_[every_micro], of(micro_batches, micros), of(homes, home).name,
        levels_[late] == 0 ? "all" : "kept");
  }
  /// Of what a single rank computes: a file's name.
  std::string key(bool coded) const {
    const TinyModel m = model(coded, true);
    return fmt::format("{}_{}_{}_{}_{}", levels_[kind], m.dims.num_hidden_layers, m.dims.num_key_value_heads,
                       m.global, coded ? step_types().fp8 : "none");
  }

  /// coded: of a size of which products of codes can be cut.
  TinyModel model(bool coded, bool alone) const {
    TinyModel m;
    m.sequence = coded ? 32 : 15;
    if (coded) {
      m.dims.hidden_size = 32, m.dims.intermediate_size = 64, m.dims.head_dim = 16;
      m.fp8 = step_types().fp8;
    }
    of(kinds, kind).set(m);
    if (of(contexts, context).method == ContextMethod::heads) m.dims.num_key_value_heads = 4;
    m.dims.num_hidden_layers = layers();
    m.global = of(micro_batches, micros) * of(copies, copy).replicate * of(copies, copy).shard;
    if (!alone)
      m.token_order = program::token_order(mesh(), of(contexts, context).method, token_multiple(coded));
    return m;
  }

  /// name: of the schedule.
  JobSpec spec(const TinyModel& m, const program::Precision& dtypes, const char* name) const {
    JobSpec spec = spec_for(m, mesh(), of(strategies, strategy), dtypes);
    spec.schedule = program::find_schedule(name);
    spec.tensor = model::decoder_tensor_plan(m.dims, of(tensors, tensor));
    spec.context = of(contexts, context).method;
    spec.token_multiple = token_multiple(m.fp8 != "none");
    spec.recompute.every = of(recomputed, recompute);
    spec.sharding.reduce.every_micro = levels_[every_micro] == 0;
    if (levels_[late] == 1) spec.pipeline.late_weights = program::LateWeights::kept;
    of(homes, home).set(spec.offload);
    // Moments are what gradients are read from.
    if (dtypes.parameters == DType::f64) spec.offload.optimizer = {};
    return spec;
  }
  JobSpec spec_alone(const TinyModel& m, const program::Precision& dtypes) const {
    return spec_for(m, MeshShape(), "NO_SHARD", dtypes);
  }

 private:
  int token_multiple(bool coded) const {
    return std::lcm(of(tensors, tensor), coded ? static_cast<int>(model::fp8_multiple) : 1);
  }

  /// Stages of different length.
  int layers() const {
    const int stages = of(pipelines, pipeline) * program::find_schedule(schedule_name()).chunks;
    return stages <= 4 ? 5 : stages <= 8 ? 9 : 17;
  }

  MeshShape mesh() const {
    MeshShape mesh;
    mesh[Axis::pipeline] = of(pipelines, pipeline);
    mesh[Axis::replicate] = of(copies, copy).replicate, mesh[Axis::shard] = of(copies, copy).shard;
    mesh[Axis::context] = of(contexts, context).ranks, mesh[Axis::tensor] = of(tensors, tensor);
    return mesh;
  }

  std::vector<int> levels_;
};

/// Rows that together hold each pair of levels of two factors that so many ranks can have.
inline std::vector<Row> all_rows() {
  const auto count = [](const auto& levels) { return static_cast<int>(std::size(levels)); };
  std::vector<Levels> meshes;
  for (int p = 0; p < count(pipelines); ++p)
    for (int t = 0; t < count(tensors); ++t)
      for (int c = 0; c < count(contexts); ++c)
        for (int d = 0; d < count(copies); ++d)
          if (Levels mesh{p, t, c, d}; std::ranges::find(rank_counts, ranks_of(mesh)) != rank_counts.end())
            meshes.push_back(std::move(mesh));
  const Levels others{count(schedules),     count(strategies), count(kinds),
                      count(step_types),    count(recomputed), 2,
                      count(micro_batches), count(homes),      2};
  std::vector<Row> rows;
  for (Levels& levels : Pairwise(std::move(meshes), others).rows()) rows.emplace_back(std::move(levels));
  return rows;
}

}  // namespace ztrain::test::stages
