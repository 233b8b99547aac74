#pragma once
// Attention to keys that come one part after another, as they go round a ring of ranks (H. Liu, M. Zaharia
// and P. Abbeel, "Ring attention with blockwise transformers for near-infinite context", 2023). What is
// summed so far is kept as the online softmax has it, not divided by the sum of weights, in acc_t: parts
// round no more than one pass over all keys does, and it is rounded to T once, at the end.

#include "kernels/attention/attention.hpp"

namespace ztrain::kernels {

/// Between parts. The unit of `maximum` is the kernel's own (part_unit). A query that has seen no key yet has
/// a sum of 0 and a maximum that is far below every score, and finite: nothing becomes NaN.
template <class A>
struct AttentionSums {
  Matrix<A> out;      ///< [tokens, heads * head_dim]
  Matrix<A> maximum;  ///< [tokens, heads]
  Matrix<A> sum;      ///< [tokens, heads]
};

/// Adds what a part of the keys gives to the sums; resumes: not to nothing. The shape has keys, first_query
/// and key_begin, and no row. Where no query sees any of the keys nothing is computed.
template <class T>
void attention_part(Exec& exec, const AttentionInput<T>& input, const AttentionSums<acc_t<T>>& sums,
                    bool resumes);

/// What a maximum of attention_part's, and of attention_plain_part's, is multiplied by to become a natural
/// logarithm.
double part_unit();
inline constexpr double plain_part_unit = 1;

/// After the last part: o and lse, as attention_forward gives them. Each query has seen a key. unit: of the
/// kernel that made the sums.
template <class T>
void attention_merge(Exec& exec, const AttentionSums<const acc_t<T>>& sums, Matrix<T> o, Matrix<acc_t<T>> lse,
                     double unit = part_unit());

/// Where the gradients of a part go.
template <class A>
struct PartGradients {
  Matrix<A> dq, dk, dv;  ///< [tokens, heads * head_dim], [keys, kv_heads * head_dim]
  bool adds_to_queries = false;
  bool adds_to_keys = false;  ///< to dk and dv
};

/// The gradients that come of a part of the keys, from o and lse of all of them: as attention_backward, dense
/// and in acc_t. workspace: attention_part_workspace_bytes() bytes, aligned to 64.
template <class T>
void attention_part_backward(Exec& exec, const AttentionInput<T>& input, Matrix<const T> o,
                             Matrix<const acc_t<T>> lse, Matrix<const T> dout,
                             const PartGradients<acc_t<T>>& gradients, Vector<std::byte> workspace);

/// Throws Error where the views do not have the shape's sizes.
template <class T>
void check_part_sums(const AttentionInput<T>& input, const AttentionSums<acc_t<T>>& sums);
template <class T>
void check_part_gradients(const AttentionInput<T>& input, Matrix<const T> o, Matrix<const acc_t<T>> lse,
                          const PartGradients<acc_t<T>>& gradients, Vector<std::byte> workspace);

}  // namespace ztrain::kernels
