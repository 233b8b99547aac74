#include "kernels/attention/blocks/attention_forward_blocks.hpp"
#include "kernels/attention/blocks/attention_half_cpu.hpp"
#include "kernels/gemm/half_unit_cpu.hpp"
#include "kernels/launch/half_tile.hpp"

#ifdef ZTRAIN_HALF_TILES

namespace ztrain::kernels {
namespace {

using namespace attention_blocks;
using half::Pair;

struct HalfArguments : AttentionForwardArguments<bf16> {
  half::Unit unit;
};

/// Sums are kept transposed, [element of the head][query]: what multiplies the probabilities of a block is
/// then the transpose of its values, which all blocks of queries share, and probabilities only become pairs.
template <int max_dim>
struct HalfTiles {
  using Arguments = HalfArguments;

  struct Queries : QueryBlock<float> {
    alignas(64) Pair queries[max_dim / 2 * block];  ///< pairs of elements of the head, [pair][query]
    alignas(64) float out[max_dim * block];
  };
  Queries query[most_blocks];
  alignas(64) bf16 keys[block * max_dim];
  alignas(64) bf16 values[max_dim * block];  ///< transposed
  alignas(64) float scores[block * block];   ///< [key][query]
  alignas(64) Pair probabilities[block / 2 * block];
  half::TileRegisters registers;
  Prefetch ahead;

  explicit HalfTiles(const Arguments& a) : registers(a.unit) {}

  void load_queries(const Arguments& a, std::int64_t head, std::int64_t q0, int number) {
    const int hd = head_dim(a), depth = tile::padded(hd, half::depth_quantum);
    Queries& q = query[number];
    q.set(a, q0);
    half::load(a.q + a.shape.q_at(q0, head), a.shape.q_row(), q.count, hd, keys, max_dim, block, depth);
    half::transpose(half::words(keys), max_dim / 2, block, depth / 2, q.queries, block);
    std::fill_n(q.out, tile::padded(hd, half::quantum) * block, 0.0f);
    if (!a.resumes) return;
    alignas(64) float rows[block * max_dim];
    std::fill_n(rows, block * max_dim, 0.0f);
    load_sums(a, head, q, rows, max_dim);
    half::transpose(rows, max_dim, block, tile::padded(hd, half::quantum), q.out, block);
  }

  void load_keys(const Arguments& a, std::int64_t offset, int count) {
    const int hd = head_dim(a), depth = tile::padded(hd, half::depth_quantum);
    const std::int64_t stride = a.shape.kv_row();
    Pair pairs[block / 2 * max_dim];
    half::load(a.v + offset, stride, count, hd, keys, max_dim, block, depth);
    half::pair_rows(keys, max_dim, block, depth, pairs, max_dim);
    half::transpose(pairs, max_dim, block / 2, depth, half::words(values), block / 2);
    half::load(a.k + offset, stride, count, hd, keys, max_dim, block, depth);
  }

  void score(const Arguments& a, const Seen& seen, const Queries& q) {
    const int hd = head_dim(a);
    half::product_within<false>(a.unit, seen.keys, {keys, max_dim, q.queries, block, scores, block},
                                [&](int i, int n) {
                                  ahead.take(half::quantum);
                                  return tile::Part{seen.queries_of(i, n), {0, hd}};
                                });
    const float factor = a.scale * static_cast<float>(log2_e);
    for (int i = 0; i < seen.keys * block; ++i) scores[i] *= factor;
  }

  void add_values(const Arguments& a, const Seen& seen, Queries& q) {
    const int rows = tile::padded(head_dim(a), half::quantum), count = seen.keys;
    const int depth = tile::padded(count, half::depth_quantum);
    std::fill_n(scores + count * block, (depth - count) * block, 0.0f);
    half::pair_rows(scores, block, depth, block, probabilities, block);
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < block; ++j) q.out[i * block + j] *= q.softmax.correction[j];
    half::product_within<true>(a.unit, rows, {values, block, probabilities, block, q.out, block},
                               [&](int, int) {
                                 ahead.take(half::quantum);
                                 return tile::Part{{0, block}, {0, depth}};
                               });
  }

  void store(const Arguments& a, std::int64_t head, int number) const {
    alignas(64) float rows[block * max_dim];
    const Queries& q = query[number];
    half::transpose(q.out, block, tile::padded(head_dim(a), half::quantum), block, rows, max_dim);
    store_output(a, head, q, rows, max_dim);
  }

 private:
  static int head_dim(const Arguments& a) { return static_cast<int>(a.shape.head_dim); }
};

}  // namespace

bool attention_forward_half(Exec& exec, const AttentionForwardArguments<bf16>& a) {
  const auto unit = half_unit(exec);
  if (!unit) return false;
  by_width(a.shape.head_dim, [&]<int max_dim>() { forward<HalfTiles<max_dim>>(exec, {a, *unit}); });
  return true;
}

}  // namespace ztrain::kernels

#endif
