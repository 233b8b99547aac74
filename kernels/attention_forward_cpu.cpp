#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "kernels/attention.hpp"
#include "kernels/attention_arguments.hpp"
#include "kernels/exec_kokkos.hpp"
#include "kernels/online_softmax.hpp"
#include "kernels/tile.hpp"

namespace ztrain::kernels {
namespace {

constexpr int block = 64;

template <class T>
struct ForwardArguments : AttentionArguments<T> {
  T* o;
  acc_t<T>* lse;
};

/// Scores of keys that query q0 + j must not see are masked.
template <class A>
void mask(A* __restrict scores, int keys, std::int64_t k0, std::int64_t q0,
          const std::int32_t* __restrict first_key) {
  for (int i = 0; i < keys; ++i) {
    const auto key = static_cast<std::int32_t>(k0 + i);
    const auto first_query = static_cast<std::int32_t>(key - q0);
    for (int j = 0; j < block; ++j)
      if (j < first_query || key < first_key[j]) scores[i * block + j] = masked_score<A>;
  }
}

template <class T>
void store_output(const ForwardArguments<T>& a, std::int64_t q0, int rows, std::int64_t head,
                  const acc_t<T>* __restrict out, int ld, const Softmax<acc_t<T>, block>& softmax) {
  const std::int64_t hd = a.shape.head_dim;
  for (int i = 0; i < rows; ++i) {
    const acc_t<T> inverse = acc_t<T>(1) / softmax.sum[i];
    T* __restrict to = a.o + a.shape.o_at(q0 + i, head);
    for (std::int64_t d = 0; d < hd; ++d) to[d] = static_cast<T>(out[i * ld + d] * inverse);
    a.lse[(q0 + i) * a.shape.heads + head] = softmax.maximum[i] + std::log(softmax.sum[i]);
  }
}

template <class A, int max_dim>
struct ForwardTiles {
  alignas(64) A queries[max_dim * block];  ///< transposed, times scale
  alignas(64) A keys[block * max_dim];
  alignas(64) A values[block * max_dim];
  alignas(64) A scores[block * block];
  alignas(64) A out[block * max_dim];
  alignas(64) std::int32_t first_key[block];
  Softmax<A, block> softmax;
};

/// Which queries and keys a step joins: queries q0 + begin .. q0 + rows of a head, keys k0 .. k0 + keys.
struct Step {
  std::int64_t head, q0, k0;
  int rows, begin, keys;
};

template <class T, int max_dim>
void attend(const ForwardArguments<T>& a, const Step& s, ForwardTiles<acc_t<T>, max_dim>& t) {
  using A = acc_t<T>;
  const int hd = static_cast<int>(a.shape.head_dim), columns = tile::padded(hd, tile::column_quantum);
  const std::int64_t stride = a.shape.kv_row();
  const std::int64_t offset = a.shape.kv_at(s.k0, s.head / (a.shape.heads / a.shape.kv_heads));
  tile::load(a.k + offset, stride, s.keys, hd, t.keys, max_dim, tile::padded(s.keys, tile::row_quantum), hd);
  tile::load(a.v + offset, stride, s.keys, hd, t.values, max_dim, s.keys, columns);
  tile::product<A, false>(s.keys, block - s.begin, hd, t.keys, max_dim, 1, t.queries + s.begin, block,
                          t.scores + s.begin, block);
  if (s.k0 + s.keys > s.q0 || t.first_key[s.rows - 1] > s.k0) mask(t.scores, s.keys, s.k0, s.q0, t.first_key);
  t.softmax.update(t.scores, s.keys, s.begin);
  A* out = t.out + s.begin * max_dim;
  scale_rows(out, max_dim, s.rows - s.begin, columns, t.softmax.correction + s.begin);
  tile::product<A, true>(s.rows - s.begin, columns, s.keys, t.scores + s.begin, 1, block, t.values, max_dim,
                         out, max_dim);
}

/// One block of queries of one head. Blocks of keys end where the block of queries begins; then come two
/// halves, the second of which the first half of the queries does not see.
template <class T, int max_dim>
void forward_block(const ForwardArguments<T>& a, std::int64_t head, std::int64_t q0) {
  ForwardTiles<acc_t<T>, max_dim> t;
  const int hd = static_cast<int>(a.shape.head_dim);
  const int rows = static_cast<int>(std::min<std::int64_t>(block, a.shape.tokens - q0));
  tile::load(a.q + a.shape.q_at(q0, head), a.shape.q_row(), rows, hd, t.keys, max_dim, block, hd);
  tile::transpose(t.keys, max_dim, block, hd, a.scale, t.queries, block);
  for (int i = 0; i < block * max_dim; ++i) t.out[i] = 0;
  for (int i = 0; i < block * block; ++i) t.scores[i] = 0;
  for (int j = 0; j < block; ++j)
    t.first_key[j] = j < rows ? static_cast<std::int32_t>(first_key(a.shape, a.document_start, q0 + j)) : 0;
  for (std::int64_t k0 = t.first_key[0]; k0 < q0;) {
    const std::int64_t part = (q0 - k0) % block, keys = part > 0 ? part : block;
    attend(a, {head, q0, k0, rows, 0, static_cast<int>(keys)}, t);
    k0 += keys;
  }
  attend(a, {head, q0, q0, rows, 0, std::min(rows, block / 2)}, t);
  if (rows > block / 2) attend(a, {head, q0, q0 + block / 2, rows, block / 2, rows - block / 2}, t);
  store_output(a, q0, rows, head, t.out, max_dim, t.softmax);
}

template <class T, int max_dim>
void forward(Exec& exec, const ForwardArguments<T>& a) {
  const std::int64_t blocks = (a.shape.tokens + block - 1) / block;
  Kokkos::parallel_for(
      Kokkos::RangePolicy<Kokkos::DefaultExecutionSpace>(exec.space, 0, blocks * a.shape.heads),
      [a](std::int64_t i) { forward_block<T, max_dim>(a, i % a.shape.heads, i / a.shape.heads * block); });
}

}  // namespace

template <class T>
void attention_forward(Exec& exec, const AttentionInput<T>& input, Matrix<T> o, Matrix<acc_t<T>> lse) {
  check<T>(input, o, lse);
  const ForwardArguments<T> a{arguments_of(input), o.data, lse.data};
  if (a.shape.head_dim <= 64) return forward<T, 64>(exec, a);
  if (a.shape.head_dim <= 128) return forward<T, 128>(exec, a);
  forward<T, 256>(exec, a);
}

template void attention_forward(Exec&, const AttentionInput<float>&, Matrix<float>, Matrix<float>);
template void attention_forward(Exec&, const AttentionInput<bf16>&, Matrix<bf16>, Matrix<float>);
template void attention_forward(Exec&, const AttentionInput<f16>&, Matrix<f16>, Matrix<float>);
template void attention_forward(Exec&, const AttentionInput<double>&, Matrix<double>, Matrix<double>);

}  // namespace ztrain::kernels
