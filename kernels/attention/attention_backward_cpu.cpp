#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/attention/attention_arguments.hpp"
#include "kernels/attention/attention_mask_cpu.hpp"
#include "kernels/attention/attention_part.hpp"
#include "kernels/launch/fast_exp.hpp"
#include "kernels/launch/prefetch.hpp"
#include "kernels/launch/rows.hpp"
#include "kernels/launch/tile.hpp"

namespace ztrain::kernels {
namespace {

constexpr int block = attention_block;

template <class T>
struct BackwardArguments : AttentionGradientArguments<T> {
  // Of all keys, dq_sum [tokens, heads * head_dim] is dq itself unless T is narrower than its accumulator.
  std::int64_t sum_row;  ///< elements from one token to the next of dq_sum

  bool of_part() const { return this->dk_sum != nullptr; }

  acc_t<T>* sum_at(std::int64_t token, std::int64_t head) const {
    return this->dq_sum + token * sum_row + head * this->shape.head_dim;
  }
};

/// A block of keys of one key-value head, and the sums of its gradients. Row-major, and transposed where a
/// product needs its right factor that way.
template <class A, int max_dim>
struct KeyTiles {
  alignas(64) A keys[block * max_dim];    ///< times scale
  alignas(64) A keys_t[max_dim * block];  ///< times scale and log2(e)
  alignas(64) A values_t[max_dim * block];
  alignas(64) A dk[block * max_dim];  ///< over scale
  alignas(64) A dv[block * max_dim];
  std::int64_t begin;
  int count;
};

template <class A, int max_dim>
struct QueryTiles {
  alignas(64) A queries[block * max_dim];
  alignas(64) A dout[block * max_dim];
  alignas(64) A dq[block * max_dim];
  alignas(64) A p[block * block];   ///< scores, then probabilities; [query][key]
  alignas(64) A ds[block * block];  ///< gradients of the probabilities, then of the scores
  FirstKeys first;
  Prefetch ahead;
};

template <class T>
void head_delta(const BackwardArguments<T>& a, std::int64_t row) {
  using A = acc_t<T>;
  const std::int64_t hd = a.shape.head_dim;
  const T* __restrict o = a.o + row * hd;
  const T* __restrict dout = a.dout + row * hd;
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t d = 0; d < hd; ++d) sum += static_cast<A>(o[d]) * static_cast<A>(dout[d]);
  a.delta[row] = sum;
  if (a.of_part() && !a.adds_to_queries) std::fill_n(a.dq_sum + row * hd, hd, A(0));
}

/// One row of probabilities and score gradients over scale; zero outside [begin, end), the keys that the
/// query sees. lse: as a logarithm to base 2.
template <class A>
void softmax_row(A* __restrict p, A* __restrict ds, tile::Span seen, A lse, A delta) {
  for (int j = 0; j < block; ++j) {
    const A above = p[j] - lse;
    const A probability = fast_exp2(above > A(1) ? A(1) : above);  // rounding alone puts it above 0
    const A slope = probability * (ds[j] - delta);
    const bool sees = (j >= seen.begin) & (j < seen.end);
    p[j] = sees ? probability : A(0);
    ds[j] = sees ? slope : A(0);
  }
}

/// Probabilities of a block of queries, and the gradients of their scores.
template <class T, int max_dim>
void score(const BackwardArguments<T>& a, std::int64_t head, std::int64_t q0, const Seen& seen, int rows,
           const KeyTiles<acc_t<T>, max_dim>& key, QueryTiles<acc_t<T>, max_dim>& t) {
  using A = acc_t<T>;
  const int hd = static_cast<int>(a.shape.head_dim);
  const auto part = [&](int i, int n) {
    t.ahead.take(ahead_rows);
    return tile::Part{whole_packs(seen.keys_of(i, n)), {0, hd}};
  };
  tile::product_within<A, false>(rows, {t.queries, max_dim, 1, key.keys_t, block, t.p, block}, part);
  tile::product_within<A, false>(rows, {t.dout, max_dim, 1, key.values_t, block, t.ds, block}, part);
  for (int i = 0; i < rows; ++i) {
    const std::int64_t row = (q0 + i) * a.shape.heads + head;
    softmax_row(t.p + i * block, t.ds + i * block, seen.keys_of(i, 1), A(log2_e) * a.lse[row], a.delta[row]);
  }
}

/// The gradient of a block of queries, those from q0 on, is summed over blocks of keys, the last of which
/// holds its own tokens.
template <class T, int max_dim>
void add_queries(const BackwardArguments<T>& a, std::int64_t head, std::int64_t q0, const Seen& seen,
                 int rows, const QueryTiles<acc_t<T>, max_dim>& t) {
  using A = acc_t<T>;
  const std::int64_t hd = a.shape.head_dim;
  const bool whole = !a.of_part();
  const bool first = whole && t.first.at[0] >= seen.k0, last = whole && seen.k0 == seen.q0;
  for (int i = 0; i < rows; ++i) {
    const A* __restrict from = t.dq + i * max_dim;
    A* __restrict sums = a.sum_at(q0 + i, head);
    T* __restrict dq = whole ? a.dq + a.shape.q_at(q0 + i, head) : nullptr;
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

/// Adds what one block of queries of one head gives to dk, dv and its own dq.
template <class T, int max_dim>
void query_block(const BackwardArguments<T>& a, std::int64_t head, std::int64_t q0,
                 KeyTiles<acc_t<T>, max_dim>& key, QueryTiles<acc_t<T>, max_dim>& t) {
  using A = acc_t<T>;
  const int hd = static_cast<int>(a.shape.head_dim), columns = tile::padded(hd, tile::column_quantum);
  const int rows = static_cast<int>(std::min<std::int64_t>(block, a.shape.tokens - q0));
  const int padded_rows = tile::padded(rows, tile::row_quantum);
  tile::load(a.q + a.shape.q_at(q0, head), a.shape.q_row(), rows, hd, t.queries, max_dim, padded_rows,
             columns);
  tile::load(a.dout + a.shape.o_at(q0, head), a.shape.o_row(), rows, hd, t.dout, max_dim, padded_rows,
             columns);
  t.first.set(a, q0);
  const Seen seen{t.first, static_cast<std::int32_t>(a.shape.first_query + q0),
                  static_cast<std::int32_t>(key.begin), key.count};
  score<T, max_dim>(a, head, q0, seen, rows, key, t);
  const auto of_key = [&](int i, int n) {
    t.ahead.take(ahead_rows);
    return tile::Part{{0, columns}, seen.queries_of(i, n)};
  };
  tile::product_within<A, true>(key.count, {t.p, 1, block, t.dout, max_dim, key.dv, max_dim}, of_key);
  tile::product_within<A, true>(key.count, {t.ds, 1, block, t.queries, max_dim, key.dk, max_dim}, of_key);
  tile::product_within<A, false>(rows, {t.ds, block, 1, key.keys, max_dim, t.dq, max_dim}, [&](int i, int n) {
    t.ahead.take(ahead_rows);
    return tile::Part{{0, columns}, seen.keys_of(i, n)};
  });
  add_queries<T, max_dim>(a, head, q0, seen, rows, t);
}

template <class T, int max_dim>
void load_keys(const BackwardArguments<T>& a, std::int64_t kv_head, KeyTiles<acc_t<T>, max_dim>& key) {
  using A = acc_t<T>;
  const int hd = static_cast<int>(a.shape.head_dim), columns = tile::padded(hd, tile::column_quantum);
  const std::int64_t stride = a.shape.kv_row(), offset = a.shape.kv_at(key.begin, kv_head);
  tile::load(a.v + offset, stride, key.count, hd, key.keys, max_dim, block, columns);
  tile::transpose(key.keys, max_dim, block, hd, A(1), key.values_t, block);
  tile::load(a.k + offset, stride, key.count, hd, key.keys, max_dim, block, columns);
  tile::transpose(key.keys, max_dim, block, hd, a.scale * A(log2_e), key.keys_t, block);
  for (int i = 0; i < block; ++i)
    for (int d = 0; d < columns; ++d) {
      key.keys[i * max_dim + d] *= a.scale;
      key.dk[i * max_dim + d] = key.dv[i * max_dim + d] = 0;
    }
}

template <class T>
void store_rows(const acc_t<T>* __restrict tile, int ld, int rows, std::int64_t cols, acc_t<T> factor,
                T* __restrict to, std::int64_t stride) {
  for (int i = 0; i < rows; ++i)
    for (std::int64_t d = 0; d < cols; ++d) to[i * stride + d] = static_cast<T>(factor * tile[i * ld + d]);
}

template <class T, int max_dim>
void store_keys(const BackwardArguments<T>& a, std::int64_t kv_head, KeyTiles<acc_t<T>, max_dim>& key) {
  using A = acc_t<T>;
  const std::int64_t hd = a.shape.head_dim, stride = a.shape.kv_row(),
                     offset = a.shape.kv_at(key.begin, kv_head);
  if (!a.of_part()) {
    store_rows(key.dk, max_dim, key.count, hd, a.scale, a.dk + offset, stride);
    store_rows(key.dv, max_dim, key.count, hd, A(1), a.dv + offset, stride);
    return;
  }
  for (int i = 0; i < key.count; ++i)
    for (std::int64_t d = 0; d < hd; ++d) {
      const std::int64_t to = offset + i * stride + d;
      const A dk = a.scale * key.dk[i * max_dim + d], dv = key.dv[i * max_dim + d];
      a.dk_sum[to] = a.adds_to_keys ? a.dk_sum[to] + dk : dk;
      a.dv_sum[to] = a.adds_to_keys ? a.dv_sum[to] + dv : dv;
    }
}

/// Where the block of keys that begins here ends: blocks of queries begin where blocks of keys do.
std::int64_t end_of_block(const AttentionShape& s, std::int64_t begin) {
  const std::int64_t before = block - s.first_query % block;  // keys before a block of queries
  return std::min(s.key_count(), begin + block - (begin + before) % block);
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
  const std::int64_t next = end_of_block(a.shape, begin);
  const std::int64_t at = a.shape.kv_at(begin, kv_head);
  const std::int64_t rows = next - begin;
  const std::int64_t more = end_of_block(a.shape, next) - next;
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

/// All of one key-value head and of the query heads that read it.
template <class T, int max_dim>
void backward_head(const BackwardArguments<T>& a, std::int64_t kv_head) {
  using A = acc_t<T>;
  KeyTiles<A, max_dim> key;
  QueryTiles<A, max_dim> query;
  const std::int64_t tokens = a.shape.tokens, group = a.shape.heads / a.shape.kv_heads;
  const std::int64_t first = kv_head * group, end = first + group;
  const auto first_query = [&](std::int64_t k0) {
    return std::max<std::int64_t>(0, k0 - a.shape.first_query);
  };
  for (key.begin = 0; key.begin < a.shape.key_count(); key.begin += key.count) {
    const std::int64_t keys_end = end_of_block(a.shape, key.begin), own = first_query(key.begin);
    key.count = static_cast<int>(keys_end - key.begin);
    const auto reads = [&](std::int64_t q0) {
      return q0 < tokens && first_key(a.shape, a.document_start, q0) < keys_end;
    };
    if (!reads(own)) {
      std::fill_n(key.dk, block * max_dim, A(0));
      std::fill_n(key.dv, block * max_dim, A(0));
      store_keys<T, max_dim>(a, kv_head, key);
      continue;
    }
    load_keys<T, max_dim>(a, kv_head, key);
    for (std::int64_t head = first; head < end; ++head)
      for (std::int64_t q0 = own; reads(q0); q0 += block) {
        if (reads(q0 + block))
          ask_queries(a, head, q0 + block, query.ahead);
        else if (head + 1 < end)
          ask_queries(a, head + 1, own, query.ahead);
        else
          ask_queries(a, first, first_query(keys_end), query.ahead);
        if (head == first && q0 == own) ask_keys(a, kv_head, key.begin, query.ahead);
        query_block<T, max_dim>(a, head, q0, key, query);
      }
    store_keys<T, max_dim>(a, kv_head, key);
  }
}

template <class T, int max_dim>
void backward(Exec& exec, const BackwardArguments<T>& a) {
  for_rows(exec, a.shape.tokens * a.shape.heads, [a](std::int64_t row) { head_delta(a, row); });
  for_rows(exec, a.shape.kv_heads, [a](std::int64_t kv_head) { backward_head<T, max_dim>(a, kv_head); });
}

template <class T>
void run(Exec& exec, const BackwardArguments<T>& a) {
  by_width(a.shape.head_dim, [&]<int max_dim>() { backward<T, max_dim>(exec, a); });
}

}  // namespace

template <class T>
void attention_backward(Exec& exec, const AttentionInput<T>& input, Matrix<const T> o,
                        Matrix<const acc_t<T>> lse, Matrix<const T> dout, Matrix<T> dq, Matrix<T> dk,
                        Matrix<T> dv, Vector<std::byte> workspace) {
  using A = acc_t<T>;
  check_attention<T>(input, o, lse);
  const AttentionShape& s = input.shape;
  const auto needed = attention_backward_workspace_bytes(s.tokens, s.heads, s.head_dim, dtype_of<T>());
  REQUIRE(workspace.count >= needed, "attention backward: the workspace has {} bytes, {} are needed",
          workspace.count, needed);
  A* delta = reinterpret_cast<A*>(workspace.data);
  BackwardArguments<T> a{{arguments_of(input), o.data, lse.data, dout.data, delta, dq.data, dk.data, dv.data},
                         s.q_row()};
  if constexpr (sizeof(T) < sizeof(A)) {
    a.dq_sum = delta + s.tokens * s.heads;
    a.sum_row = s.o_row();
  } else {
    a.dq_sum = dq.data;
  }
  run(exec, a);
}

template <class T>
void attention_part_backward(Exec& exec, const AttentionInput<T>& input, Matrix<const T> o,
                             Matrix<const acc_t<T>> lse, Matrix<const T> dout,
                             const PartGradients<acc_t<T>>& gradients, Vector<std::byte> workspace) {
  check_part_gradients<T>(input, o, lse, gradients, workspace);
  run<T>(exec, {part_arguments(input, o, lse, dout, gradients, workspace), input.shape.o_row()});
}

ZTRAIN_INSTANCES(attention_backward)
ZTRAIN_INSTANCES(attention_part_backward)

}  // namespace ztrain::kernels
