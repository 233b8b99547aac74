#pragma once
// The settings that tests/mpi/matrix.cpp combines, and what each does to a job.

#include <functional>
#include <vector>

#include "config/strategy.hpp"
#include "model/fp8.hpp"
#include "model/lora.hpp"
#include "model/trainable.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::test::matrix {

using program::JobSpec;

struct Level {
  const char* name;
  std::function<void(JobSpec&)> set;
  double tolerance = 0;   ///< relative, against a single rank
  double loss_scale = 1;  ///< of the rows that have this level
  void (*dims)(config::Model&) = nullptr;
};

/// The first level of a factor that only places things is the reference.
struct Factor {
  bool numeric;
  std::vector<Level> levels;
};

inline Factor strategies() {
  Factor f{false, {}};
  for (const auto& row : config::strategies())
    f.levels.push_back({row.name.data(), [&row](JobSpec& s) { s.strategy = row; }});
  return f;
}

inline Factor accumulations() {
  return {true,
          {{"reduce", [](JobSpec& s) { s.sharding.reduce.every_micro = true; }},
           {"no_sync", [](JobSpec& s) { s.sharding.reduce.every_micro = false; }}}};
}

inline Factor prefetches() {
  using program::BackwardPrefetch;
  const auto gather = [](int forward, BackwardPrefetch backward, int units, std::int64_t elements) {
    return [=](JobSpec& s) { s.sharding.gather = {forward, backward, units, elements, 0, false}; };
  };
  return {false,
          {{"prefetch 1 pre", gather(1, BackwardPrefetch::pre, 0, 0)},
           {"no prefetch", gather(0, BackwardPrefetch::none, 0, 0)},
           {"prefetch 3 post", gather(3, BackwardPrefetch::post, 0, 0)},
           {"one unit at a time", gather(2, BackwardPrefetch::pre, 1, 0)},
           {"two units, 9000 elements", gather(4, BackwardPrefetch::post, 2, 9000)}}};
}

inline Factor lifetimes() {
  const auto reshard = [](bool after) {
    return [=](JobSpec& s) { s.strategy.reshard_after_forward = after; };
  };
  return {false,
          {{"as the strategy", [](JobSpec&) {}},
           {"kept", reshard(false)},
           {"dropped", reshard(true)},
           {"sub-groups",
            [](JobSpec& s) {
              if (s.mesh[Axis::shard] % 2 != 0) return;
              s.mesh.inner_of(Axis::shard) = 2;
              s.sharding.secondary_shards = true;
            }},
           {"reuse distance", [](JobSpec& s) { s.sharding.gather.max_reuse_distance = 8000; }}}};
}

inline Factor units() {
  using enum program::UnitGranularity;
  const auto group = [](program::UnitOptions o) { return [=](JobSpec& s) { s.units = o; }; };
  return {false,
          {{"blocks", group({})},
           {"by size", group({size, 10000, {}, 0})},
           {"whole model", group({model, 0, {}, 0})},
           {"patterns", group({pattern, 0, {"model.layers.*.mlp", "model.layers.1.self_attn"}, 0})},
           {"norms whole", group({block, 0, {}, 100})},
           {"patterns, small ones whole", group({pattern, 0, {"model.layers.*.mlp.*_proj"}, 600})}}};
}

inline Factor recomputes() {
  const auto recompute = [](program::Recompute r) { return [=](JobSpec& s) { s.recompute = r; }; };
  return {false,
          {{"recompute none", recompute({})},
           {"recompute full", recompute({1, {}})},
           {"every second block", recompute({2, {}})},
           {"norm, swiglu", recompute({0, {"norm", "swiglu"}})},
           {"qkv, attention, ffn", recompute({0, {"qkv", "attention", "gate_up", "swiglu"}})}}};
}

inline Factor buckets() {
  return {false, {{"whole reductions", [](JobSpec&) {}}, {"buckets", [](JobSpec& s) {
                                                            s.sharding.reduce.bucket_elements = 2000;
                                                          }}}};
}

inline Factor overlaps() {
  const auto overlap = [](bool on) { return [=](JobSpec& s) { s.sharding.reduce.overlap = on; }; };
  return {false, {{"overlapped reductions", overlap(true)}, {"reductions before the next", overlap(false)}}};
}

/// Codes of gradients, in one hop, or in two between nodes of two ranks.
inline Factor codes() {
  const auto set = [](int bits, bool of_nodes) {
    return [=](JobSpec& s) {
      s.sharding.reduce.code_bits = bits;
      if (!of_nodes || s.mesh[Axis::shard] != 4) return;
      s.mesh.per_node = s.mesh.inner_of(Axis::shard) = 2;
    };
  };
  return {true,
          {{"exact gradients", set(0, false)},
           {"int8 gradients", set(8, false), 1e-3},
           {"int4 gradients, by node", set(4, true), 4e-2}}};
}

inline Factor precisions() {
  const auto set = [](program::Precision p, bool stochastic) {
    return [=](JobSpec& s) {
      s.precision = p;
      s.optimizer.stochastic_rounding = stochastic;
    };
  };
  using enum DType;
  return {true,
          {{"fp32", set({f32, f32, f32, f32, f32}, false), 1e-7},
           {"bf16", set({bf16, f32, f32, f32, f32}, false), 1e-4},
           {"bf16-pure", set({bf16, bf16, bf16, bf16, bf16}, true), 2e-3},
           {"fsdp-bf16", set({bf16, bf16, bf16, bf16, bf16}, false), 2e-3},
           {"deepspeed-bf16", set({bf16, bf16, bf16, f32, f32}, false), 2e-3},
           {"bf16, fp32 sums", set({bf16, bf16, f32, f32, f32}, false), 2e-3},
           {"deepspeed-fp16", set({f16, f16, f16, f32, f32}, false), 3e-4, 1024},
           {"fp16, fp32 gradients", set({f16, f32, f32, f32, f32}, false), 5e-5, 1024},
           {"fp32, bf16 on the wire", set({f32, f32, bf16, f32, f32}, false), 1e-3}}};
}

inline Factor optimizers() {
  const auto rule = [](const char* name) { return [=](JobSpec& s) { s.optimizer.options.name = name; }; };
  return {
      true,
      {{"adamw", rule("adamw")},
       {"adamw_8bit", rule("adamw_8bit"), 1e-5},
       {"adam", rule("adam")},
       {"sgd", rule("sgd")},
       {"lion", rule("lion"), 1e-5},
       {"muon", rule("muon"), 1e-5},
       {"groups", [](JobSpec& s) {
          s.optimizer.options.no_decay = {"*.o_proj.weight"};
          s.optimizer.options.groups = {{"model.embed_tokens.*", 0.5, 0.01}, {"*.mlp.*", 2, std::nullopt}};
        }}}};
}

/// What is trained: of a frozen parameter nothing but the weight exists, and adapters add ops and units.
inline Factor trained() {
  const auto set = [](config::Model choice, config::Lora lora) {
    return [=](JobSpec& s) {
      s.graph_passes.push_back([=](model::Graph& graph, const Coordinate&) {
        model::add_adapters(graph, lora, 17);
        model::mark_trainable(graph, choice);
      });
    };
  };
  config::Model all, norms, upper, without;
  norms.trainable = {"*norm.weight"};
  upper.trainable = {"model.layers.1.*", "model.norm.weight"};
  without.frozen = {"model.embed_tokens.*", "*.o_proj.weight"};
  return {true,
          {{"all trained", [](JobSpec&) {}},
           {"adapters", set(all, {3, 6, 0, {"q_proj", "v_proj", "down_proj"}})},
           {"adapters, dropout, norms", set(norms, {4, 16, 0.25, {"*_proj"}})},
           {"upper layers", set(upper, {})},
           {"some frozen", set(without, {})}}};
}

inline Factor meshes() {
  const auto axis = [](Axis a) { return [a](JobSpec& s) { s.mesh[a] = session().size(); }; };
  const auto pair = [](Axis a, Axis b) { return [a, b](JobSpec& s) { s.mesh[a] = s.mesh[b] = 2; }; };
  const auto in_ring = [](auto set) {
    return [set](JobSpec& s) {
      set(s);
      s.context = model::ContextMethod::ring;
    };
  };
  const auto overlapped = [](auto set) {
    return [set](JobSpec& s) {
      set(s);
      s.overlap_tensor = true;
    };
  };
  // With schedules of one stage a rank: the model has two layers.
  const auto staged = [](const char* schedule, auto set) {
    return [=](JobSpec& s) {
      s.mesh[Axis::pipeline] = 2;
      s.schedule = program::find_schedule(schedule);
      set(s);
    };
  };
  const auto half = [](Axis a) { return [a](JobSpec& s) { s.mesh[a] = session().size() / 2; }; };
  Factor f{true, {{"shard", axis(Axis::shard)}}};
  if (session().size() == 2) {
    f.levels.push_back({"tensor", axis(Axis::tensor)});
    f.levels.push_back({"context", axis(Axis::context)});
    f.levels.push_back({"context, in a ring", in_ring(axis(Axis::context))});
    f.levels.push_back({"pipeline, 1f1b", staged("1f1b", [](JobSpec&) {})});
    f.levels.push_back({"pipeline, zb-h2", staged("zb-h2", [](JobSpec&) {})});
  }
  if (session().size() == 4) {
    f.levels.push_back({"replicate x shard", pair(Axis::replicate, Axis::shard)});
    f.levels.push_back({"replicate x tensor", pair(Axis::replicate, Axis::tensor)});
    f.levels.push_back({"shard x tensor, overlapped", overlapped(pair(Axis::shard, Axis::tensor))});
    f.levels.push_back({"shard x context", pair(Axis::shard, Axis::context)});
    f.levels.push_back({"context x tensor", pair(Axis::context, Axis::tensor)});
    f.levels.push_back({"shard x context, in a ring", in_ring(pair(Axis::shard, Axis::context))});
    f.levels.push_back({"pipeline x shard, zb-h1", staged("zb-h1", half(Axis::shard))});
    f.levels.push_back({"pipeline x tensor, gpipe", staged("gpipe", half(Axis::tensor))});
  }
  return f;
}

/// Sizes for which products of one input are joined; those of the others keep them apart.
inline void dims_of_llama(config::Model& m) {
  m.hidden_size = 32;
  m.intermediate_size = 56;
  m.head_dim = 8;
}
/// Neither its heads nor its feed-forward can be cut into equal parts.
inline void dims_of_qwen3(config::Model& m) {
  m.num_attention_heads = 6;
  m.num_key_value_heads = 3;
  m.intermediate_size = 53;
  m.qk_norm = m.tie_word_embeddings = true;
  m.head_dim = 10;
}
inline void dims_of_qwen2(config::Model& m) {
  m.attention_bias = true;
  m.sliding_window = 5;
  m.full_attention_layers = 1;
}

inline Factor models() {
  const auto nothing = [](JobSpec&) {};
  return {true,
          {{"llama", nothing, 0, 1, dims_of_llama},
           {"qwen3", nothing, 0, 1, dims_of_qwen3},
           {"qwen2 with a window", nothing, 0, 1, dims_of_qwen2}}};
}

inline void dims_of_fp8(config::Model& m) {
  m.hidden_size = 32;
  m.intermediate_size = 64;
  if (m.head_dim < 10) m.head_dim = 16;  // else queries and the output stay in bf16
}

/// 8-bit products, of the rows whose parameters are bf16 and whose ranks have 16 tokens.
inline Factor products() {
  const auto scaling = [](const char* name) {
    return [=](JobSpec& s) {
      if (s.precision.parameters != DType::bf16 || s.mesh[Axis::context] > 1) return;
      s.graph_passes.push_back([=](model::Graph& graph, const Coordinate&) { model::use_fp8(graph, name); });
    };
  };
  return {true,
          {{"products as the parameters", [](JobSpec&) {}},
           {"fp8 tensorwise", scaling("tensorwise"), 3e-2, 1, dims_of_fp8},
           {"fp8 rowwise", scaling("rowwise"), 3e-2, 1, dims_of_fp8}}};
}

/// Mesh and strategy come first: later levels look at them. Products come behind adapters, which are put
/// beside layers as they were, and behind precisions.
inline std::vector<Factor> factors() {
  return {meshes(),     strategies(), accumulations(), prefetches(), lifetimes(),
          units(),      recomputes(), buckets(),       overlaps(),   codes(),
          precisions(), optimizers(), models(),        trained(),    products()};
}

}  // namespace ztrain::test::matrix
