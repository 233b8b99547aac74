#pragma once
// Attention one query at a time (forward) and one query or key at a time (backward): the way for what no
// library takes on a GPU, and on CPUs what the others are compared with. Any T and head_dim up to 256; each
// element is read from memory (or its caches) once per query, so that it is slow. Online softmax: Milakov and
// Gimelshein, 2018; gradients: Dao, "FlashAttention-2", 2023.

#include "kernels/attention/attention_cached.hpp"
#include "kernels/attention/attention_part.hpp"

namespace ztrain::kernels {

/// As attention_forward, on any processor. T is float, bf16, f16 or double.
template <class T>
void attention_plain_forward(Exec& exec, const AttentionInput<T>& input, Matrix<T> o, Matrix<acc_t<T>> lse);

/// As attention_backward. workspace: one acc_t<T> per token and head. The same bits on every run: each
/// gradient's element is summed by one lane, over queries (keys) in ascending order and for each over the
/// heads of its group.
template <class T>
void attention_plain_backward(Exec& exec, const AttentionInput<T>& input, Matrix<const T> o,
                              Matrix<const acc_t<T>> lse, Matrix<const T> dout, Matrix<T> dq, Matrix<T> dk,
                              Matrix<T> dv, Vector<std::byte> workspace);

/// As attention_part and attention_part_backward, on any processor.
template <class T>
void attention_plain_part(Exec& exec, const AttentionInput<T>& input, const AttentionSums<acc_t<T>>& sums,
                          bool resumes);
template <class T>
void attention_plain_part_backward(Exec& exec, const AttentionInput<T>& input, Matrix<const T> o,
                                   Matrix<const acc_t<T>> lse, Matrix<const T> dout,
                                   const PartGradients<acc_t<T>>& gradients, Vector<std::byte> workspace);

/// As attention_cached, on any processor: on a GPU the warps of a team share a query's keys.
template <class T>
void attention_cached_plain(Exec& exec, const CachedAttentionInput<T>& input, Matrix<T> o);

}  // namespace ztrain::kernels
