#include "kernels/attention/blocks/attention_backward_blocks.hpp"

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/attention/attention_part.hpp"
#include "kernels/attention/blocks/attention_half_cpu.hpp"
#include "kernels/launch/tile.hpp"

namespace ztrain::kernels {
namespace {

using namespace attention_blocks;

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

/// Products in the type of the sums. Row-major, and transposed where a product needs its right factor that
/// way.
template <class T, int max_dim>
struct WideTiles {
  using A = acc_t<T>;
  using Arguments = BackwardArguments<T>;

  alignas(64) A keys[block * max_dim];    ///< times scale
  alignas(64) A keys_t[max_dim * block];  ///< times scale and log2(e)
  alignas(64) A values_t[max_dim * block];
  alignas(64) A dk[block * max_dim];  ///< over scale
  alignas(64) A dv[block * max_dim];
  alignas(64) A queries[block * max_dim];
  alignas(64) A dout[block * max_dim];
  alignas(64) A dq[block * max_dim];
  alignas(64) A p[block * block];   ///< scores, then probabilities; [query][key]
  alignas(64) A ds[block * block];  ///< gradients of the probabilities, then of the scores
  Prefetch ahead;

  explicit WideTiles(const Arguments&) {}  // they begin as they are

  void load_keys(const Arguments& a, std::int64_t kv_head, const KeyBlock& key) {
    const int hd = static_cast<int>(a.shape.head_dim), columns = tile::padded(hd, tile::column_quantum);
    const std::int64_t stride = a.shape.kv_row(), offset = a.shape.kv_at(key.begin, kv_head);
    tile::load(a.v + offset, stride, key.count, hd, keys, max_dim, block, columns);
    tile::transpose(keys, max_dim, block, hd, A(1), values_t, block);
    tile::load(a.k + offset, stride, key.count, hd, keys, max_dim, block, columns);
    tile::transpose(keys, max_dim, block, hd, a.scale * A(log2_e), keys_t, block);
    for (int i = 0; i < block; ++i)
      for (int d = 0; d < columns; ++d) {
        keys[i * max_dim + d] *= a.scale;
        dk[i * max_dim + d] = dv[i * max_dim + d] = 0;
      }
  }

  /// Adds what one block of queries of one head gives to dk, dv and its own dq.
  void add(const Arguments& a, const BlockPair<T>& pair) {
    const int hd = static_cast<int>(a.shape.head_dim), columns = tile::padded(hd, tile::column_quantum);
    const int rows = pair.rows, padded_rows = tile::padded(rows, tile::row_quantum);
    const Seen& seen = pair.seen;
    tile::load(a.q + a.shape.q_at(pair.q0, pair.head), a.shape.q_row(), rows, hd, queries, max_dim,
               padded_rows, columns);
    tile::load(a.dout + a.shape.o_at(pair.q0, pair.head), a.shape.o_row(), rows, hd, dout, max_dim,
               padded_rows, columns);
    score(a, pair, hd);
    const auto of_key = [&](int i, int n) {
      ahead.take(ahead_rows);
      return tile::Part{{0, columns}, seen.queries_of(i, n)};
    };
    tile::product_within<A, true>(seen.keys, {p, 1, block, dout, max_dim, dv, max_dim}, of_key);
    tile::product_within<A, true>(seen.keys, {ds, 1, block, queries, max_dim, dk, max_dim}, of_key);
    tile::product_within<A, false>(rows, {ds, block, 1, keys, max_dim, dq, max_dim}, [&](int i, int n) {
      ahead.take(ahead_rows);
      return tile::Part{{0, columns}, seen.keys_of(i, n)};
    });
    add_queries(a, pair, dq, max_dim);
  }

  void store_keys(const Arguments& a, std::int64_t kv_head, const KeyBlock& key) const {
    store_gradients(a, kv_head, key, dk, dv, max_dim);
  }

 private:
  /// Probabilities of a block of queries, and the gradients of their scores.
  void score(const Arguments& a, const BlockPair<T>& pair, int hd) {
    const auto part = [&](int i, int n) {
      ahead.take(ahead_rows);
      return tile::Part{whole_packs(pair.seen.keys_of(i, n)), {0, hd}};
    };
    tile::product_within<A, false>(pair.rows, {queries, max_dim, 1, keys_t, block, p, block}, part);
    tile::product_within<A, false>(pair.rows, {dout, max_dim, 1, values_t, block, ds, block}, part);
    for (int i = 0; i < pair.rows; ++i) {
      const std::int64_t row = (pair.q0 + i) * a.shape.heads + pair.head;
      const A lse = A(log2_e) * a.lse[row];
      softmax_row<0>(p + i * block, ds + i * block, pair.seen.keys_of(i, 1), A(1), a.soft_cap * A(log2_e),
                     &lse, a.delta + row);
    }
  }
};

template <class T>
void run(Exec& exec, const BackwardArguments<T>& a) {
  for_rows(exec, a.shape.tokens * a.shape.heads, [a](std::int64_t row) { head_delta(a, row); });
  if (attention_backward_half(exec, a)) return;
  by_width(a.shape.head_dim, [&]<int max_dim>() { backward<WideTiles<T, max_dim>>(exec, a); });
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
