#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/kernel_workspace.hpp"
#include "kernels/attention.hpp"
#include "kernels/attention_arguments.hpp"
#include "kernels/exec_kokkos.hpp"
#include "kernels/fast_exp.hpp"
#include "kernels/tile.hpp"

namespace ztrain::kernels {
namespace {

constexpr int block = 64;

template <class T>
struct BackwardArguments : AttentionGradientArguments<T> {
  T* dq;
  T* dk;
  T* dv;
  acc_t<T>* dq_sum;      ///< [tokens, heads * head_dim]: dq itself unless T is narrower than its accumulator
  std::int64_t sum_row;  ///< elements from one token to the next of dq_sum

  acc_t<T>* sum_at(std::int64_t token, std::int64_t head) const {
    return dq_sum + token * sum_row + head * this->shape.head_dim;
  }
};

/// A block of keys of one key-value head, and the sums of its gradients. Row-major, and transposed where a
/// product needs its right factor that way.
template <class A, int max_dim>
struct KeyTiles {
  alignas(64) A keys[block * max_dim];
  alignas(64) A keys_t[max_dim * block];  ///< times scale
  alignas(64) A values_t[max_dim * block];
  alignas(64) A dk[block * max_dim];
  alignas(64) A dv[block * max_dim];
  std::int64_t begin;
  int count;
};

template <class A, int max_dim>
struct QueryTiles {
  alignas(64) A queries[block * max_dim];
  alignas(64) A dout[block * max_dim];
  alignas(64) A dq[block * max_dim];
  alignas(64) A p[block * block];   ///< scores, then probabilities
  alignas(64) A ds[block * block];  ///< gradients of the probabilities, then of the scores
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
}

/// One row of probabilities and score gradients; zero outside [begin, end), the keys that the query sees.
template <class A>
void softmax_row(A* __restrict p, A* __restrict ds, int begin, int end, A lse, A delta, A scale) {
  for (int j = 0; j < block; ++j) {
    const A probability = fast_exp(p[j] - lse);
    const bool seen = j >= begin && j < end;
    p[j] = seen ? probability : A(0);
    ds[j] = seen ? probability * (ds[j] - delta) * scale : A(0);
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
  tile::product<A, false>(rows, block, hd, t.queries, max_dim, 1, key.keys_t, block, t.p, block);
  tile::product<A, false>(rows, block, hd, t.dout, max_dim, 1, key.values_t, block, t.ds, block);
  for (int i = 0; i < rows; ++i) {
    const std::int64_t query = q0 + i, row = query * a.shape.heads + head;
    const auto begin = static_cast<int>(
        std::clamp<std::int64_t>(first_key(a.shape, a.document_start, query) - key.begin, 0, block));
    const auto end = static_cast<int>(std::clamp<std::int64_t>(query + 1 - key.begin, 0, key.count));
    softmax_row(t.p + i * block, t.ds + i * block, begin, end, a.lse[row], a.delta[row], a.scale);
  }
  tile::product<A, true>(key.count, columns, rows, t.p, 1, block, t.dout, max_dim, key.dv, max_dim);
  tile::product<A, true>(key.count, columns, rows, t.ds, 1, block, t.queries, max_dim, key.dk, max_dim);
  tile::product<A, false>(rows, columns, key.count, t.ds, block, 1, key.keys, max_dim, t.dq, max_dim);
  A* const sums = a.sum_at(q0, head);
  for (int i = 0; i < rows; ++i) {
    A* __restrict to = sums + i * a.sum_row;
    const A* __restrict from = t.dq + i * max_dim;
    for (int d = 0; d < hd; ++d) to[d] += from[d];
  }
}

template <class T, int max_dim>
void load_keys(const BackwardArguments<T>& a, std::int64_t kv_head, KeyTiles<acc_t<T>, max_dim>& key) {
  using A = acc_t<T>;
  const int hd = static_cast<int>(a.shape.head_dim), columns = tile::padded(hd, tile::column_quantum);
  const std::int64_t stride = a.shape.kv_row(), offset = a.shape.kv_at(key.begin, kv_head);
  tile::load(a.v + offset, stride, key.count, hd, key.keys, max_dim, block, columns);
  tile::transpose(key.keys, max_dim, block, hd, A(1), key.values_t, block);
  tile::load(a.k + offset, stride, key.count, hd, key.keys, max_dim, block, columns);
  tile::transpose(key.keys, max_dim, block, hd, a.scale, key.keys_t, block);
  for (int i = 0; i < block * max_dim; ++i) key.dk[i] = key.dv[i] = 0;
}

template <class T>
void store_rows(const acc_t<T>* __restrict tile, int ld, int rows, std::int64_t cols, T* __restrict to,
                std::int64_t stride) {
  for (int i = 0; i < rows; ++i)
    for (std::int64_t d = 0; d < cols; ++d) to[i * stride + d] = static_cast<T>(tile[i * ld + d]);
}

/// All of one key-value head and of the query heads that read it.
template <class T, int max_dim>
void backward_head(const BackwardArguments<T>& a, std::int64_t kv_head) {
  using A = acc_t<T>;
  KeyTiles<A, max_dim> key;
  QueryTiles<A, max_dim> query;
  const std::int64_t hd = a.shape.head_dim, tokens = a.shape.tokens, group = a.shape.heads / a.shape.kv_heads;
  const std::int64_t first = kv_head * group;
  for (std::int64_t t = 0; t < tokens; ++t) std::fill_n(a.sum_at(t, first), group * hd, A(0));
  for (key.begin = 0; key.begin < tokens; key.begin += block) {
    key.count = static_cast<int>(std::min<std::int64_t>(block, tokens - key.begin));
    load_keys<T, max_dim>(a, kv_head, key);
    for (std::int64_t head = first; head < first + group; ++head)
      for (std::int64_t q0 = key.begin;
           q0 < tokens && first_key(a.shape, a.document_start, q0) < key.begin + key.count; q0 += block)
        query_block<T, max_dim>(a, head, q0, key, query);
    const std::int64_t stride = a.shape.kv_row(), offset = a.shape.kv_at(key.begin, kv_head);
    store_rows(key.dk, max_dim, key.count, hd, a.dk + offset, stride);
    store_rows(key.dv, max_dim, key.count, hd, a.dv + offset, stride);
  }
  if constexpr (sizeof(T) < sizeof(A))
    for (std::int64_t t = 0; t < tokens; ++t)
      store_rows(a.sum_at(t, first), 0, 1, group * hd, a.dq + a.shape.q_at(t, first), 0);
}

template <class T, int max_dim>
void backward(Exec& exec, const BackwardArguments<T>& a) {
  using Policy = Kokkos::RangePolicy<Kokkos::DefaultExecutionSpace>;
  Kokkos::parallel_for(Policy(exec.space, 0, a.shape.tokens * a.shape.heads),
                       [a](std::int64_t row) { head_delta(a, row); });
  Kokkos::parallel_for(Policy(exec.space, 0, a.shape.kv_heads),
                       [a](std::int64_t kv_head) { backward_head<T, max_dim>(a, kv_head); });
}

}  // namespace

template <class T>
void attention_backward(Exec& exec, const AttentionInput<T>& input, Matrix<const T> o,
                        Matrix<const acc_t<T>> lse, Matrix<const T> dout, Matrix<T> dq, Matrix<T> dk,
                        Matrix<T> dv, Vector<std::byte> workspace) {
  using A = acc_t<T>;
  check<T>(input, o, lse);
  const AttentionShape& s = input.shape;
  const auto needed =
      attention_backward_workspace_bytes(s.tokens, s.heads, s.head_dim, dtype_of<T>(), Target::cpu);
  REQUIRE(workspace.count >= needed, "attention backward: the workspace has {} bytes, {} are needed",
          workspace.count, needed);
  A* delta = reinterpret_cast<A*>(workspace.data);
  BackwardArguments<T> a{
      {arguments_of(input), o.data, lse.data, dout.data, delta}, dq.data, dk.data, dv.data, nullptr, 0};
  if constexpr (sizeof(T) < sizeof(A)) {
    a.dq_sum = delta + s.tokens * s.heads;
    a.sum_row = s.o_row();
  } else {
    a.dq_sum = dq.data;
    a.sum_row = s.q_row();
  }
  if (s.head_dim <= 64) return backward<T, 64>(exec, a);
  if (s.head_dim <= 128) return backward<T, 128>(exec, a);
  backward<T, 256>(exec, a);
}

template void attention_backward(Exec&, const AttentionInput<float>&, Matrix<const float>,
                                 Matrix<const float>, Matrix<const float>, Matrix<float>, Matrix<float>,
                                 Matrix<float>, Vector<std::byte>);
template void attention_backward(Exec&, const AttentionInput<bf16>&, Matrix<const bf16>, Matrix<const float>,
                                 Matrix<const bf16>, Matrix<bf16>, Matrix<bf16>, Matrix<bf16>,
                                 Vector<std::byte>);
template void attention_backward(Exec&, const AttentionInput<f16>&, Matrix<const f16>, Matrix<const float>,
                                 Matrix<const f16>, Matrix<f16>, Matrix<f16>, Matrix<f16>, Vector<std::byte>);
template void attention_backward(Exec&, const AttentionInput<double>&, Matrix<const double>,
                                 Matrix<const double>, Matrix<const double>, Matrix<double>, Matrix<double>,
                                 Matrix<double>, Vector<std::byte>);

}  // namespace ztrain::kernels
