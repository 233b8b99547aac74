#include <algorithm>

#include "kernels/attention/cached/attention_cached_rows.hpp"
#include "kernels/attention/online_softmax.hpp"
#include "kernels/launch/tile.hpp"

namespace ztrain::kernels {
namespace {

constexpr int key_block = cached_tile;
constexpr int head_block = 8;  ///< query heads that share a row while it is at hand

constexpr int lanes = 16;  ///< sums are formed side by side in as many, so that they vectorise as they stand

template <class A, int max_dim>
struct RowTiles {
  alignas(64) A q[head_block * max_dim];  ///< times scale; zero up to a multiple of lanes
  alignas(64) A out[head_block * max_dim];
  alignas(64) A scores[head_block * key_block];
  alignas(64) A rows[key_block * max_dim];
  A maximum[head_block], sum[head_block];
};

/// In halves, so that the additions of one step are independent.
template <class A>
A sum_of(const tile::Pack<A>& pack) {
  alignas(64) A x[tile::pack_width<A>];
  *reinterpret_cast<tile::Pack<A>*>(x) = pack;
#pragma GCC unroll 4
  for (int half = tile::pack_width<A> / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) x[j] += x[j + half];
  return x[0];
}

template <class A>
A dot(const A* __restrict a, const A* __restrict b, int n) {
  using P = tile::Pack<A>;
  P sum{};
  for (int d = 0; d < n; d += tile::pack_width<A>)
    sum += *reinterpret_cast<const P*>(a + d) * *reinterpret_cast<const P*>(b + d);
  return sum_of<A>(sum);
}

/// Asks for n elements ahead of their use: arithmetic and memory then work at the same time. Beyond the end
/// of the cache it does nothing.
template <class T>
void prefetch(const T* from, int n) {
  constexpr int line = 64 / static_cast<int>(sizeof(T));
  for (int d = 0; d < n; d += line) __builtin_prefetch(from + d);
}

/// out += sum of factors[i] times row i; `packs` of them at a time stay in registers.
template <class A, int max_dim, int packs>
void add_rows(const A* __restrict rows, int count, const A* __restrict factors, A* __restrict out) {
  using P = tile::Pack<A>;
  constexpr int width = tile::pack_width<A>;
  P sum[packs];
  for (int j = 0; j < packs; ++j) sum[j] = *reinterpret_cast<const P*>(out + j * width);
  for (int i = 0; i < count; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < packs; ++j)
      sum[j] += factors[i] * *reinterpret_cast<const P*>(rows + i * max_dim + j * width);
  for (int j = 0; j < packs; ++j) *reinterpret_cast<P*>(out + j * width) = sum[j];
}

template <class A, int max_dim>
void add_all_rows(const A* rows, int count, const A* factors, int n, A* out) {
  constexpr int width = tile::pack_width<A>;
  int d = 0;
  for (; d + 4 * width <= n; d += 4 * width) add_rows<A, max_dim, 4>(rows + d, count, factors, out + d);
  for (; d < n; d += width) add_rows<A, max_dim, 1>(rows + d, count, factors, out + d);
}

template <class A>
A largest(const A* __restrict x) {
  A most[lanes];
  for (int j = 0; j < lanes; ++j) most[j] = x[j];
  for (int i = lanes; i < key_block; i += lanes)
    for (int j = 0; j < lanes; ++j) most[j] = x[i + j] > most[j] ? x[i + j] : most[j];
  for (int j = 1; j < lanes; ++j) most[0] = most[j] > most[0] ? most[j] : most[0];
  return most[0];
}

/// x becomes exp(x - maximum); gives the sum.
template <class A>
A exponentials(A* __restrict x, A maximum) {
  A sum[lanes] = {};
  for (int i = 0; i < key_block; i += lanes)
    for (int j = 0; j < lanes; ++j) {
      x[i + j] = fast_exp(x[i + j] - maximum);
      sum[j] += x[i + j];
    }
  for (int j = 1; j < lanes; ++j) sum[0] += sum[j];
  return sum[0];
}

/// Replaces the scores of a block by exp(score - maximum), and rescales what was summed before.
template <class A, int max_dim>
void normalise(RowTiles<A, max_dim>& t, int head, int width) {
  A* const scores = t.scores + head * key_block;
  const A in_block = largest(scores), next = in_block > t.maximum[head] ? in_block : t.maximum[head];
  const A correction = fast_exp(t.maximum[head] - next);
  t.maximum[head] = next;
  t.sum[head] = t.sum[head] * correction + exponentials(scores, next);
  A* __restrict out = t.out + head * max_dim;
  for (int d = 0; d < width; ++d) out[d] *= correction;
}

/// Rows [k0, k0 + keys) of the cache for the `heads` query heads of the tiles.
template <class T, int max_dim>
void attend(const CachedArguments<T>& a, std::int64_t kv, int heads, std::int64_t k0, int keys,
            RowTiles<acc_t<T>, max_dim>& t) {
  using A = acc_t<T>;
  const int hd = static_cast<int>(a.shape.head_dim), width = tile::padded(hd, lanes);
  const std::int64_t offset = (kv * a.capacity + k0) * hd;
  const T *const k = a.k + offset, *const v = a.v + offset;
  tile::load(k, hd, keys, hd, t.rows, max_dim, keys, width);
  for (int i = 0; i < keys; ++i) {
    prefetch(v + i * hd, hd);
    for (int h = 0; h < heads; ++h)
      t.scores[h * key_block + i] = dot(t.q + h * max_dim, t.rows + i * max_dim, width);
  }
  for (int h = 0; h < heads; ++h) {
    cap_scores(t.scores + h * key_block, keys, a.soft_cap);
    for (int i = keys; i < key_block; ++i) t.scores[h * key_block + i] = masked_score<A>;
    normalise(t, h, width);
  }
  tile::load(v, hd, keys, hd, t.rows, max_dim, keys, width);
  for (int h = 0; h < heads; ++h) {
    // The block after this one, a share of it per head.
    for (int i = h; i < keys; i += heads) prefetch(k + (keys + i) * hd, hd);
    add_all_rows<A, max_dim>(t.rows, keys, t.scores + h * key_block, width, t.out + h * max_dim);
  }
}

/// Query heads [head, head + heads) of one token, which share a key-value head.
template <class T, int max_dim>
void attend_heads(const CachedArguments<T>& a, std::int64_t token, std::int64_t head, int heads) {
  using A = acc_t<T>;
  RowTiles<A, max_dim> t;
  const std::int64_t hd = a.shape.head_dim, at = (token * a.shape.heads + head) * hd;
  for (int i = 0; i < head_block * max_dim; ++i) t.q[i] = t.out[i] = 0;
  for (int h = 0; h < heads; ++h) {
    for (std::int64_t d = 0; d < hd; ++d)
      t.q[h * max_dim + d] = a.scale * static_cast<A>(a.q[at + h * hd + d]);
    t.maximum[h] = initial_maximum<A>;
    t.sum[h] = 0;
  }
  const std::int64_t row = a.row_of(token), end = row >= 0 && row < a.capacity ? row + 1 : 0;
  for (int h = 0; h < heads; ++h) a.begin_softmax(head + h, end > 0, t.maximum[h], t.sum[h]);
  const std::int64_t kv = head / (a.shape.heads / a.shape.kv_heads);
  for (std::int64_t k0 = a.first_row(row), keys = 0; k0 < end; k0 += keys) {
    keys = rows_of_tile(a, k0, end);
    if (a.shape.layout.has(row, k0)) attend(a, kv, heads, k0, static_cast<int>(keys), t);
  }
  // Without a row there was nothing to sum: 0 / 0.
  for (int h = 0; h < heads; ++h)
    for (std::int64_t d = 0; d < hd; ++d)
      a.o[at + h * hd + d] = static_cast<T>(t.out[h * max_dim + d] / t.sum[h]);
}

template <class T, int max_dim>
void launch(Exec& exec, const CachedArguments<T>& a) {
  const std::int64_t group = a.shape.heads / a.shape.kv_heads, parts = (group + head_block - 1) / head_block;
  const std::int64_t per_token = a.shape.kv_heads * parts;
  for_rows(exec, a.shape.tokens * per_token, [=](std::int64_t i) {
    const std::int64_t kv = i % per_token / parts, part = i % parts;
    const std::int64_t heads = std::min<std::int64_t>(head_block, group - part * head_block);
    attend_heads<T, max_dim>(a, i / per_token, kv * group + part * head_block, static_cast<int>(heads));
  });
}

}  // namespace

template <class T>
void attend_rows(Exec& exec, const CachedArguments<T>& a) {
  by_width(a.shape.head_dim, [&]<int max_dim>() { launch<T, max_dim>(exec, a); });
}

ZTRAIN_INSTANCES(attend_rows)

}  // namespace ztrain::kernels
