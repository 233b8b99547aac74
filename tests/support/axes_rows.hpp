#pragma once
// What tests/mpi/axes_pairs.cpp combines: meshes of replicate, shard, context and tensor, and all that a job
// on them may have. A row is a level of each factor.

#include <fmt/format.h>

#include <array>
#include <string>
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
enum class Training : int { all, adapters, dropout, frozen };
inline constexpr const char* trainings[] = {"all", "adapters", "adapters with dropout", "a part"};
enum class Layers : int { by_tokens, overlapped, whole };
inline constexpr const char* layers[] = {"norms by tokens", "overlap", "norms whole"};
struct Accumulation {
  const char* name;
  int micro_batches;
  bool every_micro;
};
inline constexpr Accumulation accumulations[] = {
    {"once", 1, true}, {"twice, each reduced", 2, true}, {"twice, reduced at the end", 2, false}};

enum Factor : std::size_t {
  mesh,
  strategy,
  precision,
  size,
  training,
  layer,
  recompute,
  accumulation,
  packed,
  window,
  tied,
  biases,
  head_norms
};

class Row {
 public:
  Row(const Mesh& of, std::vector<int> levels) : mesh_(of), levels_(std::move(levels)) {}

  const Mesh& mesh() const { return mesh_; }
  const Precision& precision() const { return precisions[at(axes::precision)]; }

  std::string name() const {
    return fmt::format("{} x {} x context {} ({}) x tensor {}, {}, {}, {}", mesh_.replicate, mesh_.shard,
                       mesh_.context, static_cast<int>(mesh_.method), mesh_.tensor, strategies[at(strategy)],
                       layers[at(layer)], of_model());
  }
  /// Of what a single rank computes: a file's name.
  std::string key(bool coded) const {
    std::string text;
    for (const Factor f : {size, training, packed, window, tied, biases, head_norms})
      text += fmt::format("{}", levels_[f]);
    return fmt::format("{}_{}_{}", text, global(coded), static_cast<int>(sizes_of(coded)));
  }

  /// coded: of a size of which products of codes can be cut.
  TinyModel model(bool coded, bool alone) const {
    TinyModel m;
    set_sizes(m, coded);
    if (on(packed)) m.document_ends = {1, 2, 5, 10};
    if (on(window)) m.dims.sliding_window = 3, m.dims.full_attention_layers = 1;
    m.dims.tie_word_embeddings = on(tied);
    m.dims.attention_bias = m.dims.attention_output_bias = on(biases);
    m.dims.qk_norm = on(head_norms);
    set_training(m);
    m.global = global(coded);
    if (coded) m.fp8 = precision().fp8;
    if (!alone) m.token_order = program::token_order(shape(m), mesh_.method, multiple(coded));
    return m;
  }

  program::JobSpec spec(const TinyModel& m, const program::Precision& dtypes) const {
    const MeshShape of = shape(m);
    program::JobSpec spec = spec_for(m, of, strategies[at(strategy)], dtypes);
    spec.context = mesh_.method;
    spec.token_multiple = multiple(m.fp8 != "none");
    spec.tensor = model::decoder_tensor_plan(m.dims, mesh_.tensor);
    const std::int64_t tokens = m.token_order.padded(spec.tokens) / mesh_.context;
    const auto as = static_cast<Layers>(levels_[layer]);
    spec.tensor.sequence_parallel = as != Layers::whole && tokens % mesh_.tensor == 0;
    spec.overlap_tensor = as == Layers::overlapped && spec.tensor.sequence_parallel;
    spec.recompute.every = levels_[recompute];
    spec.sharding.reduce.every_micro = accumulations[at(accumulation)].every_micro;
    return spec;
  }

 private:
  std::size_t at(Factor f) const { return static_cast<std::size_t>(levels_[f]); }
  bool on(Factor f) const { return levels_[f] == 1; }
  static int multiple(bool coded) { return coded ? static_cast<int>(model::fp8_multiple) : 1; }
  int data() const { return mesh_.replicate * mesh_.shard; }
  std::int64_t micro(bool coded) const { return sizes_of(coded) == Sizes::rows && !coded ? 2 : 1; }
  std::int64_t global(bool coded) const {
    return micro(coded) * data() * accumulations[at(accumulation)].micro_batches;
  }

  std::string of_model() const {
    return fmt::format("{}, {}, trained {}, recompute {}, {}{}{}{}{}{}", precision().name, sizes[at(size)],
                       trainings[at(training)], levels_[recompute], accumulations[at(accumulation)].name,
                       on(packed) ? ", packed" : "", on(window) ? ", window" : "", on(tied) ? ", tied" : "",
                       on(biases) ? ", biases" : "", on(head_norms) ? ", norms of heads" : "");
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
        m.sequence = coded ? 48 : 11;
        m.micro = micro(coded);
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
    if (as == Training::adapters || as == Training::dropout) {
      m.lora = {
          3, 6, as == Training::dropout ? 0.25 : 0.0, {"q_proj", "k_proj", "o_proj", "down_proj", "up_proj"}};
      m.dims.trainable = {"model.layers.1.input_layernorm.weight"};
      m.adapter_std = 0.05;
    }
  }

  /// Heads are dealt to as many ranks as share them equally; the others are a ring around these.
  MeshShape shape(const TinyModel& m) const {
    MeshShape of;
    of[Axis::replicate] = mesh_.replicate, of[Axis::shard] = mesh_.shard;
    of[Axis::context] = mesh_.context, of[Axis::tensor] = mesh_.tensor;
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

/// Of so many ranks: rows that hold each pair of levels of two factors. Of more than 4, which take long, one
/// for each mesh, with the other factors in turn; with ZTRAIN_MATRIX=full pairs here too.
inline std::vector<Row> rows_of_ranks(int ranks) {
  std::vector<Mesh> own;
  for (const Mesh& m : meshes)
    if (m.ranks() == ranks) own.push_back(m);
  const auto count = [](const auto& levels) { return static_cast<int>(std::size(levels)); };
  const std::vector<int> counts{count(own),
                                count(strategies),
                                count(precisions),
                                count(sizes),
                                count(trainings),
                                count(layers),
                                3,
                                count(accumulations),
                                2,
                                2,
                                2,
                                2,
                                2};
  const char* which = std::getenv("ZTRAIN_MATRIX");
  const bool full = which != nullptr && std::string_view(which) == "full";
  std::vector<Row> rows;
  if (ranks <= 4 || full) {
    for (std::vector<int>& levels : Pairwise(counts).rows()) {
      const auto number = static_cast<std::size_t>(levels[mesh]);
      rows.emplace_back(own[number], std::move(levels));
    }
    return rows;
  }
  for (std::size_t n = 0; n < own.size(); ++n) {
    std::vector<int> levels;
    for (std::size_t f = 0; f < counts.size(); ++f)
      levels.push_back(f == mesh ? static_cast<int>(n)
                                 : static_cast<int>((n + f / 2) % static_cast<std::size_t>(counts[f])));
    rows.emplace_back(own[n], std::move(levels));
  }
  return rows;
}

}  // namespace ztrain::test::axes
