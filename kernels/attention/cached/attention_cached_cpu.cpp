#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "kernels/attention/cached/attention_cached_rows.hpp"
#include "kernels/attention/online_softmax.hpp"
#include "kernels/launch/tile.hpp"

namespace ztrain::kernels {
namespace {

constexpr int block = cached_tile;
constexpr std::int64_t few_tokens = 4;  ///< up to here a block of queries would be mostly padding

template <class A, int max_dim>
struct Tiles {
  alignas(64) A queries[max_dim * block];  ///< transposed, times scale and log2(e)
  alignas(64) A keys[block * max_dim];
  alignas(64) A values[block * max_dim];
  alignas(64) A scores[block * block];
  alignas(64) A out[block * max_dim];
  Softmax<A, block> softmax;
};

/// Queries q0 .. q0 + rows of a head.
struct Queries {
  std::int64_t head, q0;
  int rows;
};

template <class T>
void mask(const CachedArguments<T>& a, const Queries& q, std::int64_t k0, int keys,
          acc_t<T>* __restrict scores) {
  for (int j = 0; j < q.rows; ++j) {
    const std::int64_t row = a.row_of(q.q0 + j);
    const std::int64_t first = a.shape.layout.has(row, k0) ? a.first_row(row) : row + 1;
    for (int i = 0; i < keys; ++i)
      if (k0 + i > row || k0 + i < first) scores[i * block + j] = masked_score<acc_t<T>>;
  }
}

/// Rows [k0, k0 + keys) of the cache. The queries are in two blocks of a layout at most: those of the first
/// and of the last query.
template <class T, int max_dim>
void attend(const CachedArguments<T>& a, const Queries& q, std::int64_t k0, int keys,
            Tiles<acc_t<T>, max_dim>& t) {
  using A = acc_t<T>;
  const std::int64_t first = a.row_of(q.q0), last = a.row_of(q.q0 + q.rows - 1);
  const bool of_first = a.shape.layout.has(first, k0), of_last = a.shape.layout.has(last, k0);
  if (!of_first && !of_last) return;
  const int hd = static_cast<int>(a.shape.head_dim), columns = tile::padded(hd, tile::column_quantum);
  const std::int64_t kv = q.head / (a.shape.heads / a.shape.kv_heads), offset = (kv * a.capacity + k0) * hd;
  tile::load(a.k + offset, hd, keys, hd, t.keys, max_dim, tile::padded(keys, tile::row_quantum), hd);
  tile::load(a.v + offset, hd, keys, hd, t.values, max_dim, keys, columns);
  tile::product<A, false>(keys, block, hd, t.keys, max_dim, 1, t.queries, block, t.scores, block);
  cap_scores(t.scores, keys * block, a.soft_cap * A(log2_e));
  if (k0 + keys - 1 > first || k0 < a.first_row(last) || !of_first || !of_last)
    mask(a, q, k0, keys, t.scores);
  t.softmax.update(t.scores, keys);
  scale_rows(t.out, max_dim, q.rows, columns, t.softmax.correction);
  tile::product<A, true>(q.rows, columns, keys, t.scores, 1, block, t.values, max_dim, t.out, max_dim);
}

template <class T, int max_dim>
void store(const CachedArguments<T>& a, const Queries& q, const Tiles<acc_t<T>, max_dim>& t) {
  using A = acc_t<T>;
  const std::int64_t hd = a.shape.head_dim;
  for (int i = 0; i < q.rows; ++i) {
    const std::int64_t row = a.row_of(q.q0 + i);
    const bool cached = row >= 0 && row < a.capacity;
    const A inverse = cached ? A(1) / t.softmax.sum[i] : std::numeric_limits<A>::quiet_NaN();
    T* __restrict to = a.o + ((q.q0 + i) * a.shape.heads + q.head) * hd;
    for (std::int64_t d = 0; d < hd; ++d) to[d] = static_cast<T>(t.out[i * max_dim + d] * inverse);
  }
}

template <class T, int max_dim>
void attend_block(const CachedArguments<T>& a, std::int64_t head, std::int64_t q0) {
  Tiles<acc_t<T>, max_dim> t;
  const int hd = static_cast<int>(a.shape.head_dim);
  const Queries q{head, q0, static_cast<int>(std::min<std::int64_t>(block, a.shape.tokens - q0))};
  const std::int64_t stride = a.shape.heads * hd;
  tile::load(a.q + q0 * stride + head * hd, stride, q.rows, hd, t.keys, max_dim, block, hd);
  tile::transpose(t.keys, max_dim, block, hd, a.scale * acc_t<T>(log2_e), t.queries, block);
  for (int i = 0; i < block * max_dim; ++i) t.out[i] = 0;
  for (int i = 0; i < block * block; ++i) t.scores[i] = 0;
  for (int i = 0; i < block; ++i) {
    a.begin_softmax(head, true, t.softmax.maximum[i], t.softmax.sum[i]);
    if (a.sinks != nullptr) t.softmax.maximum[i] *= acc_t<T>(log2_e);
  }
  const std::int64_t end = std::min(a.row_of(q0 + q.rows), a.capacity);
  for (std::int64_t k0 = std::max<std::int64_t>(0, a.first_row(a.row_of(q0))), keys = 0; k0 < end;
       k0 += keys) {
    keys = rows_of_tile(a, k0, end);
    attend(a, q, k0, static_cast<int>(keys), t);
  }
  store(a, q, t);
}

template <class T, int max_dim>
void attend_blocks(Exec& exec, const CachedArguments<T>& a) {
  const std::int64_t blocks = (a.shape.tokens + block - 1) / block;
  for_rows(exec, blocks * a.shape.heads, [a](std::int64_t i) {
    attend_block<T, max_dim>(a, i % a.shape.heads, i / a.shape.heads * block);
  });
}

}  // namespace

template <class T>
void attention_cached(Exec& exec, const CachedAttentionInput<T>& input, Matrix<T> o) {
  check_cached<T>(input, o);
  const CachedArguments<T> a = arguments_of(input, o);
  if (a.shape.tokens <= few_tokens) return attend_rows(exec, a);
  by_width(a.shape.head_dim, [&]<int max_dim>() { attend_blocks<T, max_dim>(exec, a); });
}

ZTRAIN_INSTANCES(attention_cached)

}  // namespace ztrain::kernels
