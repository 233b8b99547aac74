#include "kernels/attention/blocks/attention_backward_blocks.hpp"
#include "kernels/attention/blocks/attention_half_cpu.hpp"
#include "kernels/gemm/half_unit_cpu.hpp"
#include "kernels/launch/half_tile.hpp"

#ifdef ZTRAIN_HALF_TILES

namespace ztrain::kernels {
namespace {

using namespace attention_blocks;
using half::Pair;

struct HalfArguments : BackwardArguments<bf16> {
  half::Unit unit;
};

/// Scores and their gradients are [key][query]: rounded as they lie they are left factors for dk and dv. For
/// dq their pairs are transposed. In fp32 there are those of a few keys at a time, which stay in the first
/// cache.
template <int max_dim>
struct HalfTiles {
  using Arguments = HalfArguments;

  // Of the keys.
  alignas(64) bf16 keys[block * max_dim];
  alignas(64) bf16 values[block * max_dim];
  alignas(64) Pair key_pairs[block / 2 * max_dim];  ///< of rows
  alignas(64) float dk[block * max_dim];            ///< over scale
  alignas(64) float dv[block * max_dim];
  // Of the queries. Transposed: pairs of elements of the head, [pair][query].
  alignas(64) bf16 rows[block * max_dim];
  alignas(64) Pair queries_t[max_dim / 2 * block];
  alignas(64) Pair query_pairs[block / 2 * max_dim];
  alignas(64) Pair dout_t[max_dim / 2 * block];
  alignas(64) Pair dout_pairs[block / 2 * max_dim];
  alignas(64) float dq[block * max_dim];
  // Of both.
  alignas(64) bf16 p[block * block];   ///< probabilities, [key][query]
  alignas(64) bf16 ds[block * block];  ///< gradients of the scores over scale
  alignas(64) Pair ds_pairs[block / 2 * block];
  alignas(64) bf16 ds_t[block * block];  ///< [query][key]
  half::TileRegisters registers;
  Prefetch ahead;

  explicit HalfTiles(const Arguments& a) : registers(a.unit) {}

  void load_keys(const Arguments& a, std::int64_t kv_head, const KeyBlock& key) {
    const int hd = head_dim(a), depth = tile::padded(hd, half::depth_quantum);
    const std::int64_t stride = a.shape.kv_row(), offset = a.shape.kv_at(key.begin, kv_head);
    half::load(a.k + offset, stride, key.count, hd, keys, max_dim, block, depth);
    half::load(a.v + offset, stride, key.count, hd, values, max_dim, block, depth);
    half::pair_rows(keys, max_dim, block, depth, key_pairs, max_dim);
    std::fill_n(dk, block * max_dim, 0.0f);
    std::fill_n(dv, block * max_dim, 0.0f);
  }

  /// Adds what one block of queries of one head gives to dk, dv and its own dq.
  void add(const Arguments& a, const BlockPair<bf16>& pair) {
    const int hd = head_dim(a), columns = tile::padded(hd, half::quantum);
    const Seen& seen = pair.seen;
    load_queries(a.q + a.shape.q_at(pair.q0, pair.head), a.shape.q_row(), pair.rows, hd, queries_t,
                 query_pairs);
    load_queries(a.dout + a.shape.o_at(pair.q0, pair.head), a.shape.o_row(), pair.rows, hd, dout_t,
                 dout_pairs);
    score(a, pair, hd);
    const auto of_key = [&](int i, int n) {
      ahead.take(half::quantum);
      return tile::Part{{0, columns}, seen.queries_of(i, n)};
    };
    half::product_within<true>(a.unit, seen.keys, {p, block, dout_pairs, max_dim, dv, max_dim}, of_key);
    half::product_within<true>(a.unit, seen.keys, {ds, block, query_pairs, max_dim, dk, max_dim}, of_key);
    half::transpose(ds_pairs, block, block / 2, block, half::words(ds_t), block / 2);
    half::product_within<false>(a.unit, pair.rows, {ds_t, block, key_pairs, max_dim, dq, max_dim},
                                [&](int i, int n) {
                                  ahead.take(half::quantum);
                                  return tile::Part{{0, columns}, seen.keys_of(i, n)};
                                });
    for (int i = 0; i < pair.rows; ++i)
      for (int d = 0; d < columns; ++d) dq[i * max_dim + d] *= a.scale;
    add_queries(a, pair, dq, max_dim);
  }

  void store_keys(const Arguments& a, std::int64_t kv_head, const KeyBlock& key) const {
    store_gradients(a, kv_head, key, dk, dv, max_dim);
  }

 private:
  static int head_dim(const Arguments& a) { return static_cast<int>(a.shape.head_dim); }

  void load_queries(const bf16* from, std::int64_t stride, int count, int hd, Pair* transposed, Pair* pairs) {
    const int depth = tile::padded(hd, half::depth_quantum);
    half::load(from, stride, count, hd, rows, max_dim, block, depth);
    half::transpose(half::words(rows), max_dim / 2, block, depth / 2, transposed, block);
    half::pair_rows(rows, max_dim, block, depth, pairs, max_dim);
  }

  /// What softmax_row takes of each query.
  struct OfQueries {
    alignas(64) float lse[block] = {};
    alignas(64) float delta[block] = {};
  };

  /// Probabilities of a block of queries, and the gradients of their scores; zero from the last key on.
  void score(const Arguments& a, const BlockPair<bf16>& pair, int hd) {
    OfQueries of;
    for (int j = 0; j < pair.rows; ++j) {
      const std::int64_t row = (pair.q0 + j) * a.shape.heads + pair.head;
      of.lse[j] = static_cast<float>(log2_e) * a.lse[row];
      of.delta[j] = a.delta[row];
    }
    int i = 0;
    for (; i < pair.seen.keys; i += half::quantum) score_keys(a, pair.seen, of, hd, i);
    std::fill_n(ds_pairs + i / 2 * block, (block - i) / 2 * block, 0);
  }

  /// Of a quantum of keys.
  void score_keys(const Arguments& a, const Seen& seen, const OfQueries& of, int hd, int key) {
    constexpr int count = half::quantum;
    alignas(64) float scores[count * block], slopes[count * block];
    const auto part = [&](int, int n) {
      ahead.take(half::quantum);
      return tile::Part{seen.queries_of(key, n), {0, hd}};
    };
    half::product_within<false>(a.unit, count,
                                {keys + key * max_dim, max_dim, queries_t, block, scores, block}, part);
    half::product_within<false>(a.unit, count,
                                {values + key * max_dim, max_dim, dout_t, block, slopes, block}, part);
    constexpr auto unit = static_cast<float>(log2_e);
    const int there = std::min(count, seen.keys - key);
    for (int i = 0; i < there; ++i)
      softmax_row<1>(scores + i * block, slopes + i * block, seen.queries_of(key + i, 1), a.scale * unit,
                     a.soft_cap * unit, of.lse, of.delta);
    std::fill_n(scores + there * block, (count - there) * block, 0.0f);
    std::fill_n(slopes + there * block, (count - there) * block, 0.0f);
    half::round_rows(scores, block, count, block, p + key * block, block);
    half::round_rows(slopes, block, count, block, ds + key * block, block);
    half::pair_rows(slopes, block, count, block, ds_pairs + key / 2 * block, block);
  }
};

}  // namespace

bool attention_backward_half(Exec& exec, const BackwardArguments<bf16>& a) {
  const auto unit = half_unit(exec);
  if (!unit) return false;
  by_width(a.shape.head_dim, [&]<int max_dim>() { backward<HalfTiles<max_dim>>(exec, {a, *unit}); });
  return true;
}

}  // namespace ztrain::kernels

#endif
