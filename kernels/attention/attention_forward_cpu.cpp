#include <algorithm>

#include "base/error.hpp"
#include "kernels/attention/attention_arguments.hpp"
#include "kernels/attention/attention_mask_cpu.hpp"
#include "kernels/attention/attention_part.hpp"
#include "kernels/attention/online_softmax.hpp"
#include "kernels/launch/prefetch.hpp"
#include "kernels/launch/rows.hpp"
#include "kernels/launch/tile.hpp"

namespace ztrain::kernels {
namespace {

constexpr int block = attention_block;

/// Queries that share what is loaded of the keys and values: so many blocks of a head.
constexpr int most_blocks = 4;

/// A block of queries of one head, and what was summed for it.
template <class A, int max_dim>
struct QueryTiles {
  alignas(64) A queries[max_dim * block];  ///< transposed, times scale and log2(e)
  alignas(64) A out[block * max_dim];
  FirstKeys first;
  Softmax<A, block> softmax;
  std::int64_t begin;
  std::int32_t position;  ///< of the first among the keys
  int count;
};

template <class A, int max_dim>
struct ForwardTiles {
  QueryTiles<A, max_dim> query[most_blocks];
  alignas(64) A keys[block * max_dim];
  alignas(64) A values[block * max_dim];
  alignas(64) A scores[block * block];  ///< [key][query]
  Prefetch ahead;
};

/// Scores of keys that a query must not see are masked.
template <class A>
void mask(A* __restrict scores, const Seen& seen) {
  int end = 0;
  for (int i = 0; i < seen.keys; ++i) {
    const std::int32_t key = seen.k0 + i, begin = key - seen.q0;
    while (end < block && seen.first.at[end] <= key) ++end;
    A* const row = scores + i * block;
    for (int j = 0; j < block; ++j) {
      const A score = row[j];
      row[j] = (j >= begin) & (j < end) ? score : masked_score<A>;
    }
  }
}

template <class A, int max_dim>
void score(int hd, const Seen& seen, ForwardTiles<A, max_dim>& t, const QueryTiles<A, max_dim>& q) {
  const tile::Product<A> product{t.keys, max_dim, 1, q.queries, block, t.scores, block};
  if (seen.all())
    return tile::product_within<A, false>(seen.keys, product, [&](int, int) {
      t.ahead.take(ahead_rows);
      return tile::Part{{0, block}, {0, hd}};
    });
  tile::product_within<A, false>(seen.keys, product, [&](int i, int n) {
    t.ahead.take(ahead_rows);
    return tile::Part{whole_packs(seen.queries_of(i, n)), {0, hd}};
  });
  mask(t.scores, seen);
}

/// Adds what keys k0 .. k0 + keys, of which the tiles have keys and values, give to a block of queries.
template <class A, int max_dim>
void attend(int hd, std::int32_t k0, int keys, ForwardTiles<A, max_dim>& t, QueryTiles<A, max_dim>& q) {
  const int columns = tile::padded(hd, tile::column_quantum);
  const Seen seen{q.first, q.position, k0, keys};
  if (seen.none()) return;
  score(hd, seen, t, q);
  q.softmax.update(t.scores, keys);
  scale_rows(q.out, max_dim, q.count, columns, q.softmax.correction);
  tile::product_within<A, true>(
      q.count, tile::Product<A>{t.scores, 1, block, t.values, max_dim, q.out, max_dim}, [&](int i, int n) {
        t.ahead.take(ahead_rows);
        return tile::Part{{0, columns}, seen.keys_of(i, n)};
      });
}

template <class T, int max_dim>
void load_sums(const AttentionForwardArguments<T>& a, std::int64_t head, QueryTiles<acc_t<T>, max_dim>& q) {
  for (int i = 0; i < q.count; ++i) {
    const std::int64_t row = (q.begin + i) * a.shape.heads + head;
    std::copy_n(a.out + a.shape.o_at(q.begin + i, head), a.shape.head_dim, q.out + i * max_dim);
    q.softmax.maximum[i] = a.maximum[row];
    q.softmax.sum[i] = a.sum[row];
  }
}

template <class T, int max_dim>
void store_sums(const AttentionForwardArguments<T>& a, std::int64_t head,
                const QueryTiles<acc_t<T>, max_dim>& q) {
  for (int i = 0; i < q.count; ++i) {
    const std::int64_t row = (q.begin + i) * a.shape.heads + head;
    std::copy_n(q.out + i * max_dim, a.shape.head_dim, a.out + a.shape.o_at(q.begin + i, head));
    a.maximum[row] = q.softmax.maximum[i];
    a.sum[row] = q.softmax.sum[i];
  }
}

template <class T, int max_dim>
void load_queries(const AttentionForwardArguments<T>& a, std::int64_t head, std::int64_t q0,
                  ForwardTiles<acc_t<T>, max_dim>& t, QueryTiles<acc_t<T>, max_dim>& q) {
  using A = acc_t<T>;
  const int hd = static_cast<int>(a.shape.head_dim), columns = tile::padded(hd, tile::column_quantum);
  q.begin = q0;
  q.position = static_cast<std::int32_t>(a.shape.first_query + q0);
  q.count = static_cast<int>(std::min<std::int64_t>(block, a.shape.tokens - q0));
  q.softmax = {};
  tile::load(a.q + a.shape.q_at(q0, head), a.shape.q_row(), q.count, hd, t.keys, max_dim, block, hd);
  tile::transpose(t.keys, max_dim, block, hd, a.scale * A(log2_e), q.queries, block);
  for (int i = 0; i < block; ++i) std::fill_n(q.out + i * max_dim, columns, A(0));
  if (a.resumes) load_sums(a, head, q);
  q.first.set(a, q0);
}

template <class T, int max_dim>
void store_output(const AttentionForwardArguments<T>& a, std::int64_t head,
                  const QueryTiles<acc_t<T>, max_dim>& q) {
  using A = acc_t<T>;
  if (a.out != nullptr) return store_sums(a, head, q);
  const std::int64_t hd = a.shape.head_dim;
  alignas(64) A inverse[block], lse[block];
  for (int i = 0; i < block; ++i) {
    inverse[i] = A(1) / q.softmax.sum[i];
    lse[i] = A(ln_2) * q.softmax.maximum[i] + fast_log(q.softmax.sum[i]);
  }
  for (int i = 0; i < q.count; ++i) {
    const A* __restrict from = q.out + i * max_dim;
    T* __restrict to = a.o + a.shape.o_at(q.begin + i, head);
    for (std::int64_t d = 0; d < hd; ++d) to[d] = static_cast<T>(from[d] * inverse[i]);
    a.lse[(q.begin + i) * a.shape.heads + head] = lse[i];
  }
}

/// Blocks of keys end where blocks of queries begin.
template <class T>
std::int64_t block_of_keys(const AttentionForwardArguments<T>& a, std::int64_t k0, std::int64_t end) {
  const std::int64_t before = block - a.shape.first_query % block;  // keys before a block of queries
  return std::min(end - k0, block - (k0 + before) % block);
}

/// The queries q0 .. of a head that are done at once: up to most_blocks blocks.
struct Task {
  std::int64_t head, q0, end;
};

template <class T>
Task task(const AttentionForwardArguments<T>& a, std::int64_t number) {
  constexpr std::int64_t step = most_blocks * block;
  const std::int64_t steps = (a.shape.tokens + step - 1) / step, q0 = number % steps * step;
  return {number / steps, q0, std::min(a.shape.tokens, q0 + step)};
}

/// Asks for the keys and values from k0 on that are loaded next.
template <class T>
void ask_keys(const AttentionForwardArguments<T>& a, std::int64_t head, std::int64_t k0, std::int64_t end,
              Prefetch& ahead) {
  if (k0 >= end) return;
  const std::int64_t offset = a.shape.kv_at(k0, head / (a.shape.heads / a.shape.kv_heads));
  const std::int64_t stride = a.shape.kv_row(), rows = block_of_keys(a, k0, end);
  ahead.add(a.k + offset, stride, rows, a.shape.head_dim);
  ahead.add(a.v + offset, stride, rows, a.shape.head_dim);
}

/// Asks for where a task's output goes, and for what the task after it reads first.
template <class T>
void ask_rest(const AttentionForwardArguments<T>& a, const Task& now, std::int64_t next, Prefetch& ahead) {
  const std::int64_t hd = a.shape.head_dim;
  const std::int64_t to = a.shape.o_at(now.q0, now.head);
  if (a.out != nullptr)
    ahead.add(a.out + to, a.shape.o_row(), now.end - now.q0, hd);
  else
    ahead.add(a.o + to, a.shape.o_row(), now.end - now.q0, hd);
  const auto [head, q0, end] = task(a, next);
  if (head >= a.shape.heads) return;
  ahead.add(a.q + a.shape.q_at(q0, head), a.shape.q_row(), end - q0, hd);
  ask_keys(a, head, first_key(a.shape, a.document_start, q0), end_of_keys(a.shape, end), ahead);
}

template <class T, int max_dim>
void forward_task(const AttentionForwardArguments<T>& a, std::int64_t number) {
  ForwardTiles<acc_t<T>, max_dim> t;
  const auto [head, q0, end] = task(a, number);
  const std::int64_t first = first_key(a.shape, a.document_start, q0), keys_end = end_of_keys(a.shape, end);
  if (a.resumes && first >= keys_end) return;
  const int hd = static_cast<int>(a.shape.head_dim), columns = tile::padded(hd, tile::column_quantum);
  const std::int64_t stride = a.shape.kv_row();
  const int blocks = static_cast<int>((end - q0 + block - 1) / block);
  for (int i = 0; i < blocks; ++i) load_queries<T, max_dim>(a, head, q0 + i * block, t, t.query[i]);
  for (std::int64_t k0 = first; k0 < keys_end;) {
    const int keys = static_cast<int>(block_of_keys(a, k0, keys_end));
    const std::int64_t offset = a.shape.kv_at(k0, head / (a.shape.heads / a.shape.kv_heads));
    tile::load(a.k + offset, stride, keys, hd, t.keys, max_dim, tile::padded(keys, tile::row_quantum), hd);
    tile::load(a.v + offset, stride, keys, hd, t.values, max_dim, keys, columns);
    if (k0 + keys < keys_end) ask_keys(a, head, k0 + keys, keys_end, t.ahead);
    if (k0 == first) ask_rest(a, {head, q0, end}, number + 1, t.ahead);
    for (int i = 0; i < blocks; ++i) attend(hd, static_cast<std::int32_t>(k0), keys, t, t.query[i]);
    k0 += keys;
  }
  for (int i = 0; i < blocks; ++i) store_output<T, max_dim>(a, head, t.query[i]);
}

/// Tasks of a head follow one another: its keys and values then stay in the second cache.
template <class T, int max_dim>
void forward(Exec& exec, const AttentionForwardArguments<T>& a) {
  constexpr std::int64_t step = most_blocks * block;
  const std::int64_t tasks = (a.shape.tokens + step - 1) / step * a.shape.heads;
  for_rows(exec, tasks, [a](std::int64_t i) { forward_task<T, max_dim>(a, i); });
}

template <class T>
void run(Exec& exec, const AttentionForwardArguments<T>& a) {
  by_width(a.shape.head_dim, [&]<int max_dim>() { forward<T, max_dim>(exec, a); });
}

}  // namespace

template <class T>
void attention_forward(Exec& exec, const AttentionInput<T>& input, Matrix<T> o, Matrix<acc_t<T>> lse) {
  check_attention<T>(input, o, lse);
  run<T>(exec, {arguments_of(input), o.data, lse.data});
}

double part_unit() {
  return ln_2;
}

template <class T>
void attention_part(Exec& exec, const AttentionInput<T>& input, const AttentionSums<acc_t<T>>& sums,
                    bool resumes) {
  check_part_sums<T>(input, sums);
  run<T>(exec, part_arguments(input, sums, resumes));
}

ZTRAIN_INSTANCES(attention_forward)
ZTRAIN_INSTANCES(attention_part)

}  // namespace ztrain::kernels
