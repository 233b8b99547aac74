#pragma once
// What tests/mpi/axes_pairs.cpp combines: meshes of replicate, shard, context and tensor, and all that a job
// on them may have. A row is a level of each factor.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "model/tensor_plan.hpp"
#include "program/passes/place.hpp"
#include "tests/support/pairwise.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::test::axes {

using model::ContextMethod;

struct Mesh {
  int replicate, shard, context, tensor;
  ContextMethod method = ContextMethod::gather;
  int ranks() const { return replicate * shard * context * tensor; }
};
inline constexpr Mesh meshes[] = {
    {1, 1, 1, 2},
    {1, 1, 2, 1},
    {1, 1, 2, 1, ContextMethod::ring},
    {1, 1, 2, 1, ContextMethod::heads},
    {1, 1, 1, 4},
    {1, 2, 1, 2},
    {2, 1, 1, 2},
    {1, 1, 4, 1},
    {1, 1, 4, 1, ContextMethod::ring},
    {1, 1, 4, 1, ContextMethod::heads},
    {1, 2, 2, 1},
    {2, 1, 2, 1, ContextMethod::ring},
    {1, 2, 2, 1, ContextMethod::heads},
    {1, 1, 2, 2},
    {1, 1, 2, 2, ContextMethod::ring},
    {1, 1, 2, 2, ContextMethod::heads},
    {1, 2, 2, 2, ContextMethod::heads},
    {2, 1, 4, 1},
    {2, 2, 2, 1, ContextMethod::ring},
    {1, 1, 8, 1, ContextMethod::heads},
    {1, 1, 4, 2, ContextMethod::heads},
    {1, 2, 1, 4},
    {2, 1, 1, 4},
    {1, 1, 2, 4, ContextMethod::ring},
    {1, 2, 4, 1},
    {1, 4, 1, 2},
    {4, 1, 2, 1, ContextMethod::ring},
    {2, 2, 2, 2},
    {2, 2, 2, 2, ContextMethod::ring},
    {2, 2, 2, 2, ContextMethod::heads},
    {1, 1, 4, 4, ContextMethod::ring},
    {1, 4, 2, 2},
    {4, 1, 2, 2, ContextMethod::heads},
    {1, 1, 16, 1},
};

inline constexpr const char* strategies[] = {"FULL_SHARD", "zero2", "NO_SHARD", "SHARD_GRAD_OP", "zero1"};

inline constexpr program::Precision f32{DType::f32, DType::f32, DType::f32, DType::f32, DType::f32};
inline constexpr program::Precision mixed{DType::bf16, DType::f32, DType::f32, DType::f32, DType::f32};
inline constexpr program::Precision f64{DType::f64, DType::f64, DType::f64, DType::f64, DType::f64};
struct Precision {
  const char* name;
  program::Precision dtypes;
  const char* fp8 = "none";
  /// How far losses and norms of several steps may be from those of a single rank, relatively.
  double loss, norm;
  bool coded() const { return std::string_view(fp8) != "none"; }
};
inline constexpr Precision precisions[] = {{"fp64", f64, "none", 1e-12, 1e-12},
                                           {"fp32", f32, "none", 1e-5, 1e-5},
                                           {"bf16", mixed, "none", 4e-3, 4e-2},
                                           {"fp8 tensorwise", mixed, "tensorwise", 4e-3, 4e-2},
                                           {"fp8 rowwise", mixed, "rowwise", 4e-3, 4e-2}};

/// What the sizes do not divide by; of codes, as far as these can be cut.
enum class Sizes : int { even, three_heads_of_keys, one_head_of_keys, rows, joined };
inline constexpr const char* sizes[] = {"even", "3 heads of keys", "1 head of keys",
                                        "rows that do not divide", "weights that are joined"};
enum class Training : int { all, adapters, dropout, frozen, magnitudes, magnitudes_with_dropout };
inline constexpr const char* trainings[] = {"all",
                                            "adapters",
                                            "adapters with dropout",
                                            "a part",
                                            "adapters with magnitudes",
                                            "the same with dropout"};
enum class Layers : int { by_tokens, overlapped, whole };
inline constexpr const char* layers[] = {"norms by tokens", "overlap", "norms whole"};
struct TokenLoss {
  const char* name;
  void (*set)(TinyModel&);
};
inline constexpr TokenLoss token_losses[] = {
    {"", [](TinyModel&) {}},
    {", pairs of answers", [](TinyModel& m) { m.pair_loss = "sigmoid"; }},
    {", rewards", [](TinyModel& m) { m.pair_loss = "reward"; }},
    {", smoothed labels and z-loss",
     [](TinyModel& m) {
       m.label_smoothing = 0.1;
       m.head_z_loss = 0.01;
     }},
    {", a teacher",
     [](TinyModel& m) {
       m.teacher = {5, 0.4};
     }},
};
struct Accumulation {
  const char* name;
  int micro_batches;
  bool every_micro;
};
inline constexpr Accumulation accumulations[] = {
    {"once", 1, true}, {"twice, each reduced", 2, true}, {"twice, reduced at the end", 2, false}};

/// The former ones are of meshes: their levels are what stands in `Mesh`, and `mesh` is its number in the
/// table. No level: of methods and layers where nothing is cut so.
enum Factor : std::size_t {
  mesh,
  replicate,
  shard,
  context,
  method,
  tensor,
  layer,
  of_meshes,
  strategy = of_meshes,
  precision,
  size,
  training,
  recompute,
  accumulation,
  packed,
  window,
  tied,
  biases,
  head_norms,
  sinks,
  token_loss,
  factors
};

/// Number that divides the tokens of a single rank.
inline int alone_multiple(bool coded) {
  return coded ? static_cast<int>(model::fp8_multiple) : 1;
}

/// Of the factors that any mesh may have.
inline Levels counts() {
  const auto count = [](const auto& levels) { return static_cast<int>(std::size(levels)); };
  return {count(strategies),
          count(precisions),
          count(sizes),
          count(trainings),
          3,
          count(accumulations),
          2,
          2,
          2,
          2,
          2,
          2,
          count(token_losses)};
}

/// Of the meshes of so many ranks, with each way of cutting layers.
inline std::vector<Levels> ways_of_ranks(int ranks) {
  std::vector<Levels> ways;
  for (int number = 0; number < static_cast<int>(std::size(meshes)); ++number) {
    const Mesh& m = meshes[number];
    if (m.ranks() != ranks) continue;
    const int by = m.context > 1 ? static_cast<int>(m.method) : no_level;
    for (int cut = 0; cut < static_cast<int>(std::size(layers)); ++cut) {
      ways.push_back({number, m.replicate, m.shard, m.context, by, m.tensor, m.tensor > 1 ? cut : no_level});
      if (m.tensor == 1) break;
    }
  }
  return ways;
}

class Row {
 public:
  explicit Row(Levels levels)
      : mesh_{levels[replicate], levels[shard], levels[context], levels[tensor]}, levels_(std::move(levels)) {
    if (levels_[method] != no_level) mesh_.method = static_cast<ContextMethod>(levels_[method]);
  }

  const Mesh& mesh() const { return mesh_; }
  const Levels& levels() const { return levels_; }
  const Precision& precision() const { return precisions[at(axes::precision)]; }

  std::string name() const {
    return fmt::format("{} x {} x context {} ({}) x tensor {}, {}, {}, {}", mesh_.replicate, mesh_.shard,
                       mesh_.context, static_cast<int>(mesh_.method), mesh_.tensor, strategies[at(strategy)],
                       mesh_.tensor > 1 ? layers[at(layer)] : "layers whole", of_model());
  }
  /// Of what a single rank computes: a file's name.
  std::string key(bool coded) const {
    std::string text;
    for (const Factor f : {size, training, packed, window, tied, biases, head_norms, sinks, token_loss})
      text += fmt::format("{}", levels_[f]);
    return fmt::format("{}_{}_{}", text, sized(coded).global, static_cast<int>(sizes_of(coded)));
  }

  /// coded: of a size of which products of codes can be cut.
  TinyModel model(bool coded, bool alone) const {
    TinyModel m = sized(coded);
    if (on(packed)) m.document_ends = {1, 2, 5, 10};
    if (on(window)) m.dims.sliding_window = 3, m.dims.full_attention_layers = 1;
    m.dims.tie_word_embeddings = on(tied);
    m.dims.attention_bias = m.dims.attention_output_bias = on(biases);
    m.dims.qk_norm = on(head_norms);
    if (on(sinks)) m.dims.family = "gpt_oss";
    token_losses[at(token_loss)].set(m);
    set_training(m);
    if (coded) m.fp8 = precision().fp8;
    m.token_order = alone ? TokenOrder(1, 1, alone_multiple(coded)) : order(m, coded);
    return m;
  }

  program::JobSpec spec(const TinyModel& m, const program::Precision& dtypes) const {
    const MeshShape of = shape(m);
    program::JobSpec spec = spec_for(m, of, strategies[at(strategy)], dtypes);
    spec.context = mesh_.method;
    spec.token_multiple = token_multiple(m.fp8 != "none");
    spec.tensor = model::decoder_tensor_plan(m.dims, mesh_.tensor);
    spec.tensor.sequence_parallel = cut() != Layers::whole;
    spec.overlap_tensor = cut() == Layers::overlapped;
    spec.recompute.every = levels_[recompute];
    spec.sharding.reduce.every_micro = accumulations[at(accumulation)].every_micro;
    return spec;
  }

 private:
  std::size_t at(Factor f) const { return static_cast<std::size_t>(levels_[f]); }
  bool on(Factor f) const { return levels_[f] == 1; }
  Layers cut() const { return static_cast<Layers>(levels_[layer]); }
  int token_multiple(bool coded) const {
    return std::lcm(cut() == Layers::whole ? 1 : mesh_.tensor, alone_multiple(coded));
  }
  TokenOrder order(const TinyModel& m, bool coded) const {
    return program::token_order(shape(m), mesh_.method, token_multiple(coded));
  }

  TinyModel sized(bool coded) const {
    TinyModel m;
    set_sizes(m, coded);
    m.global = m.micro * mesh_.replicate * mesh_.shard * accumulations[at(accumulation)].micro_batches;
    return m;
  }

  std::string of_model() const {
    return fmt::format("{}, {}, trained {}, recompute {}, {}{}{}{}{}{}{}{}", precision().name,
                       sizes[at(size)], trainings[at(training)], levels_[recompute],
                       accumulations[at(accumulation)].name, on(packed) ? ", packed" : "",
                       on(window) ? ", window" : "", on(tied) ? ", tied" : "", on(biases) ? ", biases" : "",
                       on(head_norms) ? ", norms of heads" : "", on(sinks) ? ", sinks" : "",
                       token_losses[at(token_loss)].name);
  }

  Sizes sizes_of(bool coded) const {
    // Rows of a weight that ranks share cannot have scales of their own.
    const auto wanted = static_cast<Sizes>(levels_[size]);
    const bool rowwise = coded && std::string_view(precision().fp8) == "rowwise";
    const int keys = wanted == Sizes::three_heads_of_keys ? 3 : wanted == Sizes::one_head_of_keys ? 1 : 4;
    return rowwise && mesh_.tensor > keys ? Sizes::even : wanted;
  }

  void set_sizes(TinyModel& m, bool coded) const {
    m.dims.vocab_size = 97;
    m.dims.num_key_value_heads = 4;
    if (coded) m.dims.hidden_size = 48, m.dims.intermediate_size = 64, m.dims.head_dim = 16, m.sequence = 32;
    switch (sizes_of(coded)) {
      case Sizes::even:
        return;
      case Sizes::three_heads_of_keys:
        m.dims.num_attention_heads = 6, m.dims.num_key_value_heads = 3;
        m.dims.intermediate_size = coded ? 80 : 53;
        return;
      case Sizes::one_head_of_keys:
        m.dims.num_key_value_heads = 1;
        return;
      case Sizes::rows:
        m.sequence = coded ? 20 : 7, m.micro = coded ? 2 : 3;
        return;
      case Sizes::joined:
        if (!coded) m.dims.hidden_size = 64, m.dims.intermediate_size = 64, m.dims.head_dim = 8;
        return;
    }
  }

  void set_training(TinyModel& m) const {
    const auto as = static_cast<Training>(levels_[training]);
    if (as == Training::frozen) {
      m.dims.trainable = {"model.layers.1.*", "model.norm.weight"};
      m.dims.frozen = {"*.v_proj.weight"};
    }
    if (as != Training::all && as != Training::frozen) {
      const bool drops = as == Training::dropout || as == Training::magnitudes_with_dropout;
      m.lora = {3, 6, drops ? 0.25 : 0.0, {"q_proj", "k_proj", "o_proj", "down_proj", "up_proj"}};
      m.lora.dora = as == Training::magnitudes || as == Training::magnitudes_with_dropout;
      m.dims.trainable = {"model.layers.1.input_layernorm.weight"};
      m.adapter_std = 0.05;
    }
  }

  /// Heads are dealt to as many ranks as share them equally; the others are a ring around these.
  MeshShape shape(const TinyModel& m) const {
    MeshShape of;
    of[Axis::replicate] = mesh_.replicate, of[Axis::shard] = mesh_.shard;
    of[Axis::context] = mesh_.context, of[Axis::tensor] = mesh_.tensor;
    of.per_node = 4;  // of 8 ranks and more, some sums are by node
    if (mesh_.method != ContextMethod::heads) return of;
    int ranks = mesh_.context;
    while (mesh_.context % ranks != 0 || m.dims.num_attention_heads % (ranks * mesh_.tensor) != 0 ||
           m.dims.num_key_value_heads % (ranks * mesh_.tensor) != 0)
      if (--ranks == 1) break;
    of[Axis::context] = ranks, of[Axis::ring] = mesh_.context / ranks;
    return of;
  }

  Mesh mesh_;
  std::vector<int> levels_;
};

inline constexpr int rank_counts[] = {2, 4, 8, 16};

/// Of so many ranks, and of fewer. On 2 and 4 ranks each mesh meets all else. On more, which take long, what
/// meshes are made of meets what it met on no fewer ranks, and of the rest as much as so many rows can hold
/// (each mesh in one at least); with ZTRAIN_MATRIX=full each mesh meets all else there too.
inline std::map<int, std::vector<Levels>> levels_up_to(int ranks) {
  const char* which = std::getenv("ZTRAIN_MATRIX");
  const bool full = which != nullptr && std::string_view(which) == "full";
  std::map<int, std::vector<Levels>> found;
  for (const int count : rank_counts) {
    if (count > ranks) break;
    const bool all = count <= 4 || full;
    Pairwise pairs(ways_of_ranks(count), counts(), all ? 0 : mesh + 1);
    if (!all)
      for (const auto& [fewer, rows] : found)
        for (const Levels& row : rows) pairs.spare(row);
    found[count] = all ? pairs.rows() : pairs.rows(count == 8 ? 24 : 20);
  }
  return found;
}

inline std::vector<Row> rows_of_ranks(int ranks) {
  std::vector<Row> rows;
  std::map<int, std::vector<Levels>> all = levels_up_to(ranks);
  for (Levels& levels : all.at(ranks)) rows.emplace_back(std::move(levels));
  return rows;
}

}  // namespace ztrain::test::axes
