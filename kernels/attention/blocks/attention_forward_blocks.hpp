#pragma once
// How a CPU goes over the blocks of attention's forward pass, whatever multiplies a block. Included by kernel
// sources only.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/attention/attention_arguments.hpp"
#include "kernels/attention/blocks/attention_mask_cpu.hpp"
#include "kernels/attention/online_softmax.hpp"
#include "kernels/launch/prefetch.hpp"
#include "kernels/launch/rows.hpp"

namespace ztrain::kernels::attention_blocks {

/// Queries that share what is loaded of the keys and values: so many blocks of a head.
constexpr int most_blocks = 4;

/// A block of queries of one head, beside its sums.
template <class A>
struct QueryBlock {
  FirstKeys first;
  Softmax<A, block> softmax;
  std::int64_t begin;
  std::int32_t position;  ///< of the first among the keys
  int count;

  template <class T>
  void set(const AttentionForwardArguments<T>& a, std::int64_t q0) {
    begin = q0;
    position = static_cast<std::int32_t>(a.shape.first_query + q0);
    count = static_cast<int>(std::min<std::int64_t>(block, a.shape.tokens - q0));
    softmax = {};
    first.set(a, q0);
  }
};

/// Scores [key][query] of keys that a query must not see are masked.
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

/// The sums of the keys before, as rows of queries.
template <class T>
void load_sums(const AttentionForwardArguments<T>& a, std::int64_t head, QueryBlock<acc_t<T>>& q,
               acc_t<T>* rows, int ld) {
  for (int i = 0; i < q.count; ++i) {
    const std::int64_t row = (q.begin + i) * a.shape.heads + head;
    std::copy_n(a.out + a.shape.o_at(q.begin + i, head), a.shape.head_dim, rows + i * ld);
    q.softmax.maximum[i] = a.maximum[row];
    q.softmax.sum[i] = a.sum[row];
  }
}

template <class T>
void store_sums(const AttentionForwardArguments<T>& a, std::int64_t head, const QueryBlock<acc_t<T>>& q,
                const acc_t<T>* rows, int ld) {
  for (int i = 0; i < q.count; ++i) {
    const std::int64_t row = (q.begin + i) * a.shape.heads + head;
    std::copy_n(rows + i * ld, a.shape.head_dim, a.out + a.shape.o_at(q.begin + i, head));
    a.maximum[row] = q.softmax.maximum[i];
    a.sum[row] = q.softmax.sum[i];
  }
}

/// rows: of queries, the sums of their values.
template <class T>
void store_output(const AttentionForwardArguments<T>& a, std::int64_t head, const QueryBlock<acc_t<T>>& q,
                  const acc_t<T>* rows, int ld) {
  using A = acc_t<T>;
  if (a.out != nullptr) return store_sums(a, head, q, rows, ld);
  const std::int64_t hd = a.shape.head_dim;
  alignas(64) A inverse[block], lse[block];
  for (int i = 0; i < block; ++i) {
    inverse[i] = A(1) / q.softmax.sum[i];
    lse[i] = A(ln_2) * q.softmax.maximum[i] + fast_log(q.softmax.sum[i]);
  }
  for (int i = 0; i < q.count; ++i) {
    const A* __restrict from = rows + i * ld;
    T* __restrict to = a.o + a.shape.o_at(q.begin + i, head);
    for (std::int64_t d = 0; d < hd; ++d) to[d] = static_cast<T>(from[d] * inverse[i]);
    a.lse[(q.begin + i) * a.shape.heads + head] = lse[i];
  }
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
  const std::int64_t stride = a.shape.kv_row(), rows = end_of_keys_block(a.shape, k0, end) - k0;
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

/// Adds what keys k0 .. k0 + count, of which the tiles have keys and values, give to a block of queries.
template <class Tiles>
void attend(Tiles& t, const typename Tiles::Arguments& a, std::int32_t k0, int count, int number) {
  using A = std::remove_reference_t<decltype(t.scores[0])>;
  auto& q = t.query[number];
  const Seen seen{q.first, q.position, k0, count};
  if (seen.none() || !a.shape.has_block(q.begin, k0)) return;
  t.score(a, seen, q);
  cap_scores(t.scores, count * block, a.soft_cap * A(log2_e));
  if (!seen.all()) mask(t.scores, seen);
  q.softmax.update(t.scores, count);
  t.add_values(a, seen, q);
}

/// Tiles(a) has up to most_blocks blocks of queries, query[i], with their sums, and a block of keys and
/// values: load_queries(a, head, q0, i), load_keys(a, offset, keys), `scores` [key][query] as powers of 2,
/// score(a, seen, query), add_values(a, seen, query), store(a, head, i), `ahead`.
template <class Tiles>
void forward_task(const typename Tiles::Arguments& a, std::int64_t number) {
  const auto [head, q0, end] = task(a, number);
  const std::int64_t first = first_key(a.shape, a.document_start, q0), keys_end = end_of_keys(a.shape, end);
  if (a.resumes && first >= keys_end) return;
  Tiles t(a);
  const int blocks = static_cast<int>((end - q0 + block - 1) / block);
  for (int i = 0; i < blocks; ++i) t.load_queries(a, head, q0 + i * block, i);
  for (std::int64_t k0 = first; k0 < keys_end;) {
    const int keys = static_cast<int>(end_of_keys_block(a.shape, k0, keys_end) - k0);
    bool reads = k0 == first;
    for (int i = 0; i < blocks; ++i) reads = reads || a.shape.has_block(q0 + i * block, k0);
    if (!reads) {
      k0 += keys;
      continue;
    }
    t.load_keys(a, a.shape.kv_at(k0, head / (a.shape.heads / a.shape.kv_heads)), keys);
    if (k0 + keys < keys_end) ask_keys(a, head, k0 + keys, keys_end, t.ahead);
    if (k0 == first) ask_rest(a, {head, q0, end}, number + 1, t.ahead);
    for (int i = 0; i < blocks; ++i) attend(t, a, static_cast<std::int32_t>(k0), keys, i);
    k0 += keys;
  }
  for (int i = 0; i < blocks; ++i) t.store(a, head, i);
}

/// Tasks of a head follow one another: its keys and values then stay in the second cache.
template <class Tiles>
void forward(Exec& exec, const typename Tiles::Arguments& a) {
  constexpr std::int64_t step = most_blocks * block;
  const std::int64_t tasks = (a.shape.tokens + step - 1) / step * a.shape.heads;
  for_rows(exec, tasks, [a](std::int64_t i) { forward_task<Tiles>(a, i); });
}

}  // namespace ztrain::kernels::attention_blocks
