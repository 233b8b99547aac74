#pragma once
// Causal grouped-query attention over a flattened micro-batch of several documents, blockwise with an online
// softmax: the tokens x tokens scores never exist. Method: T. Dao, "FlashAttention-2: faster attention with
// better parallelism and work partitioning", 2023; the running maximum and sum are Milakov and Gimelshein's
// ("Online normalizer calculation for softmax", 2018). Sliding windows: Beltagy, Peters and Cohan,
// "Longformer", 2020; blocks outside the window are skipped, so that cost grows with tokens x window.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/dtype.hpp"
#include "kernel_interface/attention_shape.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// What forward and backward read. T is float, bf16, f16 or double. Where shape.row is set, q, k and v are
/// columns of one matrix: rows of each begin shape.row apart, whatever the view's number of columns.
template <class T>
struct AttentionInput {
  AttentionShape shape;
  Matrix<const T> q;  ///< [tokens, heads * head_dim]
  Matrix<const T> k;  ///< [keys, kv_heads * head_dim]
  Matrix<const T> v;  ///< [keys, kv_heads * head_dim]
  /// [tokens]: token t, which is p = first_query + t of the keys, attends to those from document_start[t] to
  /// p, of which the window keeps the last ones. Non-decreasing, 0 <= document_start[t] <= p.
  Vector<const std::int32_t> document_start;
};

/// The first key that token t attends to; non-decreasing in t. Of a part of the keys it may lie behind all of
/// them.
constexpr std::int64_t first_key(const AttentionShape& shape, const std::int32_t* document_start,
                                 std::int64_t t) {
  const std::int64_t start = std::max<std::int64_t>(0, document_start[t] - shape.key_begin);
  return shape.window > 0 ? std::max(start, shape.first_query + t - shape.window + 1) : start;
}

/// Behind the last key that the tokens before `end` attend to.
constexpr std::int64_t end_of_keys(const AttentionShape& shape, std::int64_t end) {
  return std::min(shape.key_count(), shape.first_query + end);
}

/// Throws Error when the views do not have the shape's sizes, or rows would overlap. Called by forward and
/// backward; cheap.
template <class T>
void check_attention(const AttentionInput<T>& input, Matrix<const T> o, Matrix<const acc_t<T>> lse);

/// o [tokens, heads * head_dim]; lse [tokens, heads] = ln sum exp(score), which backward reads.
template <class T>
void attention_forward(Exec& exec, const AttentionInput<T>& input, Matrix<T> o, Matrix<acc_t<T>> lse);

/// Gradients dq, dk, dv (overwritten) from the output's gradient dout, with rows as far apart as those of q,
/// k and v; columns between them are left alone. The same bits on every run: one task per key-value head,
/// which sums over its group's query heads, key blocks and query blocks in a fixed order. workspace:
/// attention_backward_workspace_bytes() bytes, aligned to 64.
template <class T>
void attention_backward(Exec& exec, const AttentionInput<T>& input, Matrix<const T> o,
                        Matrix<const acc_t<T>> lse, Matrix<const T> dout, Matrix<T> dq, Matrix<T> dk,
                        Matrix<T> dv, Vector<std::byte> workspace);

}  // namespace ztrain::kernels
