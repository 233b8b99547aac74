#pragma once
// How a CPU goes over the blocks of attention's backward pass, whatever multiplies a block. Included by
// kernel sources only.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/attention/attention_arguments.hpp"
#include "kernels/attention/blocks/attention_mask_cpu.hpp"
#include "kernels/launch/fast_exp.hpp"
#include "kernels/launch/prefetch.hpp"
#include "kernels/launch/rows.hpp"

namespace ztrain::kernels {

template <class T>
struct BackwardArguments : AttentionGradientArguments<T> {
  // Of all keys, dq_sum [tokens, heads * head_dim] is dq itself unless T is narrower than its accumulator.
  std::int64_t sum_row;  ///< elements from one token to the next of dq_sum

  bool of_part() const { return this->dk_sum != nullptr; }

  acc_t<T>* sum_at(std::int64_t token, std::int64_t head) const {
    return this->dq_sum + token * sum_row + head * this->shape.head_dim;
  }
};

namespace attention_blocks {

/// A block of keys.
struct KeyBlock {
  std::int64_t begin;
  int count;
};

/// A block of queries against one of keys.
template <class T>
struct BlockPair {
  BlockPair(const BackwardArguments<T>& a, std::int64_t of_head, std::int64_t query, const KeyBlock& key,
            FirstKeys& first)
      : head(of_head),
        q0(query),
        rows(static_cast<int>(std::min<std::int64_t>(block, a.shape.tokens - q0))),
        seen{first, static_cast<std::int32_t>(a.shape.first_query + q0), static_cast<std::int32_t>(key.begin),
             key.count} {
    first.set(a, q0);
  }

  std::int64_t head, q0;
  int rows;
  Seen seen;
};

/// Makes one row of products probabilities p, and the gradients ds of probabilities those of the scores over
/// scale; both are zero outside `seen`. Scores are factor times the products, then capped at cap; they and
/// lse are logarithms to base 2. lse and delta: step elements apart, so that with 0 the row has one of each.
template <int step, class A>
void softmax_row(A* __restrict p, A* __restrict ds, tile::Span seen, A factor, A cap, const A* lse,
                 const A* delta) {
  alignas(64) A slopes[block];
  if (cap > 0) {
    for (int j = seen.begin; j < seen.end; ++j) {
      const A t = fast_tanh(factor * p[j] / cap);
      p[j] = cap * t;
      slopes[j] = 1 - t * t;
    }
    factor = 1;
  }
  for (int j = 0; j < block; ++j) {
    const A above = factor * p[j] - lse[j * step];
    const A probability = fast_exp2(above > A(1) ? A(1) : above);  // rounding alone puts it above 0
    const A slope = probability * (ds[j] - delta[j * step]);
    const bool sees = (j >= seen.begin) & (j < seen.end);
    p[j] = sees ? probability : A(0);
    ds[j] = sees ? slope : A(0);
  }
  if (cap > 0)
    for (int j = seen.begin; j < seen.end; ++j) ds[j] *= slopes[j];
}

/// The gradient of a block of queries, rows of dq, is summed over blocks of keys, the last of which holds its
/// own tokens.
template <class T>
void add_queries(const BackwardArguments<T>& a, const BlockPair<T>& pair, const acc_t<T>* dq_rows, int ld) {
  using A = acc_t<T>;
  const std::int64_t hd = a.shape.head_dim;
  const Seen& seen = pair.seen;
  const bool whole = !a.of_part();
  const bool first = whole && first_present(a.shape, pair.q0, seen.first.at[0], seen.k0) >= seen.k0,
             last = whole && seen.k0 == seen.q0;
  for (int i = 0; i < pair.rows; ++i) {
    const A* __restrict from = dq_rows + i * ld;
    A* __restrict sums = a.sum_at(pair.q0 + i, pair.head);
    T* __restrict dq = whole ? a.dq + a.shape.q_at(pair.q0 + i, pair.head) : nullptr;
    if (first && last)
      for (std::int64_t d = 0; d < hd; ++d) dq[d] = static_cast<T>(from[d]);
    else if (first)
      for (std::int64_t d = 0; d < hd; ++d) sums[d] = from[d];
    else if (!last || std::is_same_v<T, A>)
      for (std::int64_t d = 0; d < hd; ++d) sums[d] += from[d];
    else
      for (std::int64_t d = 0; d < hd; ++d) dq[d] = static_cast<T>(sums[d] + from[d]);
  }
}

template <class T>
void store_rows(const acc_t<T>* __restrict tile, int ld, int rows, std::int64_t cols, acc_t<T> factor,
                T* __restrict to, std::int64_t stride) {
  for (int i = 0; i < rows; ++i)
    for (std::int64_t d = 0; d < cols; ++d) to[i * stride + d] = static_cast<T>(factor * tile[i * ld + d]);
}

/// The gradients of a block of keys, dk over scale, and of its values.
template <class T>
void store_gradients(const BackwardArguments<T>& a, std::int64_t kv_head, const KeyBlock& key,
                     const acc_t<T>* dk_rows, const acc_t<T>* dv_rows, int ld) {
  using A = acc_t<T>;
  const std::int64_t hd = a.shape.head_dim, stride = a.shape.kv_row(),
                     offset = a.shape.kv_at(key.begin, kv_head);
  if (!a.of_part()) {
    store_rows(dk_rows, ld, key.count, hd, a.scale, a.dk + offset, stride);
    store_rows(dv_rows, ld, key.count, hd, A(1), a.dv + offset, stride);
    return;
  }
  for (int i = 0; i < key.count; ++i)
    for (std::int64_t d = 0; d < hd; ++d) {
      const std::int64_t to = offset + i * stride + d;
      const A dk = a.scale * dk_rows[i * ld + d], dv = dv_rows[i * ld + d];
      a.dk_sum[to] = a.adds_to_keys ? a.dk_sum[to] + dk : dk;
      a.dv_sum[to] = a.adds_to_keys ? a.dv_sum[to] + dv : dv;
    }
}

/// Asks for what the step after this one reads and writes.
template <class T>
void ask_queries(const BackwardArguments<T>& a, std::int64_t head, std::int64_t q0, Prefetch& ahead) {
  const std::int64_t hd = a.shape.head_dim, rows = std::min<std::int64_t>(block, a.shape.tokens - q0);
  if (rows <= 0) return;
  ahead.add(a.q + a.shape.q_at(q0, head), a.shape.q_row(), rows, hd);
  ahead.add(a.dout + a.shape.o_at(q0, head), a.shape.o_row(), rows, hd);
  ahead.add(a.sum_at(q0, head), a.sum_row, rows, hd);
}

/// Asks for where the gradients of a block of keys go, and for the keys and values after it.
template <class T>
void ask_keys(const BackwardArguments<T>& a, std::int64_t kv_head, std::int64_t begin, Prefetch& ahead) {
  const std::int64_t hd = a.shape.head_dim, stride = a.shape.kv_row();
  const std::int64_t next = end_of_keys_block(a.shape, begin, a.shape.key_count());
  const std::int64_t at = a.shape.kv_at(begin, kv_head);
  const std::int64_t rows = next - begin;
  const std::int64_t more = end_of_keys_block(a.shape, next, a.shape.key_count()) - next;
  if (a.of_part()) {
    ahead.add(a.dk_sum + at, stride, rows, hd);
    ahead.add(a.dv_sum + at, stride, rows, hd);
  } else {
    ahead.add(a.dk + at, stride, rows, hd);
    ahead.add(a.dv + at, stride, rows, hd);
  }
  if (more == 0) return;
  const std::int64_t after = a.shape.kv_at(next, kv_head);
  ahead.add(a.k + after, stride, more, hd);
  ahead.add(a.v + after, stride, more, hd);
}

/// All of one key-value head and of the query heads that read it. Tiles(a) has a block of keys and values and
/// the sums of their gradients: load_keys(a, kv_head, key), add(a, pair) of one block of queries, whose dq it
/// gives to add_queries, and store_keys(a, kv_head, key); `ahead`.
template <class Tiles>
void backward_head(const typename Tiles::Arguments& a, std::int64_t kv_head) {
  Tiles t(a);
  FirstKeys first_keys;
  KeyBlock key{};
  const std::int64_t tokens = a.shape.tokens, group = a.shape.heads / a.shape.kv_heads;
  const std::int64_t first = kv_head * group, end = first + group;
  const auto first_query = [&](std::int64_t k0) {
    return std::max<std::int64_t>(0, k0 - a.shape.first_query);
  };
  for (key.begin = 0; key.begin < a.shape.key_count(); key.begin += key.count) {
    const std::int64_t keys_end = end_of_keys_block(a.shape, key.begin, a.shape.key_count()),
                       own = first_query(key.begin);
    key.count = static_cast<int>(keys_end - key.begin);
    const auto reads = [&](std::int64_t q0) {
      return q0 < tokens && first_key(a.shape, a.document_start, q0) < keys_end;
    };
    t.load_keys(a, kv_head, key);
    for (std::int64_t head = first; reads(own) && head < end; ++head)
      for (std::int64_t q0 = own; reads(q0); q0 += block) {
        if (!a.shape.has_block(q0, key.begin)) continue;
        if (reads(q0 + block))
          ask_queries(a, head, q0 + block, t.ahead);
        else if (head + 1 < end)
          ask_queries(a, head + 1, own, t.ahead);
        else
          ask_queries(a, first, first_query(keys_end), t.ahead);
        if (head == first && q0 == own) ask_keys(a, kv_head, key.begin, t.ahead);
        t.add(a, {a, head, q0, key, first_keys});
      }
    t.store_keys(a, kv_head, key);
  }
}

template <class Tiles>
void backward(Exec& exec, const typename Tiles::Arguments& a) {
  for_rows(exec, a.shape.kv_heads, [a](std::int64_t kv_head) { backward_head<Tiles>(a, kv_head); });
}

}  // namespace attention_blocks
}  // namespace ztrain::kernels
