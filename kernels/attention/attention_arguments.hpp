#pragma once
// What the attention kernels are handed, small enough for a launch on a GPU. Included by kernel sources only.

#include <cstdint>

#include "base/function.hpp"
#include "kernels/attention/attention_part.hpp"
#include "kernels/attention/cached/attention_cached.hpp"

namespace ztrain::kernels {

/// What forward and backward read; operands as AttentionInput says.
template <class T>
struct AttentionArguments {
  AttentionShape shape;
  acc_t<T> scale;
  const T* q;
  const T* k;
  const T* v;
  const std::int32_t* document_start;
};

template <class T>
AttentionArguments<T> arguments_of(const AttentionInput<T>& input) {
  return {input.shape,  static_cast<acc_t<T>>(input.scale), input.q.data, input.k.data,
          input.v.data, input.document_start.data};
}

template <class T>
struct AttentionForwardArguments : AttentionArguments<T> {
  T* o;
  acc_t<T>* lse;
  /// Of a part of the keys, in place of o and lse; else null.
  acc_t<T>* out = nullptr;
  acc_t<T>* maximum = nullptr;
  acc_t<T>* sum = nullptr;
  bool resumes = false;
};

template <class T>
AttentionForwardArguments<T> part_arguments(const AttentionInput<T>& input,
                                            const AttentionSums<acc_t<T>>& sums, bool resumes) {
  return {arguments_of(input), nullptr, nullptr, sums.out.data, sums.maximum.data, sums.sum.data, resumes};
}

template <class T>
struct AttentionGradientArguments : AttentionArguments<T> {
  const T* o;
  const acc_t<T>* lse;
  const T* dout;
  acc_t<T>* delta;  ///< [tokens, heads]: sum over the head of dout * o
  T* dq = nullptr;
  T* dk = nullptr;
  T* dv = nullptr;
  /// Of a part of the keys, in place of dq, dk and dv; else null, but the CPU's kernel always sums dq here,
  /// and tells a part by dk_sum.
  acc_t<T>* dq_sum = nullptr;
  acc_t<T>* dk_sum = nullptr;
  acc_t<T>* dv_sum = nullptr;
  bool adds_to_queries = false, adds_to_keys = false;
};

template <class T>
AttentionGradientArguments<T> part_arguments(const AttentionInput<T>& input, Matrix<const T> o,
                                             Matrix<const acc_t<T>> lse, Matrix<const T> dout,
                                             const PartGradients<acc_t<T>>& to, Vector<std::byte> workspace) {
  auto* const delta = reinterpret_cast<acc_t<T>*>(workspace.data);
  AttentionGradientArguments<T> a{arguments_of(input), o.data, lse.data, dout.data, delta};
  a.dq_sum = to.dq.data;
  a.dk_sum = to.dk.data;
  a.dv_sum = to.dv.data;
  a.adds_to_queries = to.adds_to_queries;
  a.adds_to_keys = to.adds_to_keys;
  return a;
}

/// What all ways of going over a cache take.
template <class T>
struct CachedArguments {
  AttentionShape shape;
  std::int64_t capacity;
  acc_t<T> scale;
  const T* q;
  const T* k;
  const T* v;
  const std::int32_t* begin;
  T* o;

  /// The row of a token, and the first row that it sees.
  ZTRAIN_FUNCTION std::int64_t row_of(std::int64_t token) const { return *begin + token; }
  ZTRAIN_FUNCTION std::int64_t first_row(std::int64_t row) const {
    return shape.window > 0 && row >= shape.window ? row - shape.window + 1 : 0;
  }
};

template <class T>
CachedArguments<T> arguments_of(const CachedAttentionInput<T>& input, Matrix<T> o) {
  return {input.shape,
          input.k.rows / input.shape.kv_heads,
          static_cast<acc_t<T>>(input.scale),
          input.q.data,
          input.k.data,
          input.v.data,
          input.begin.data,
          o.data};
}

/// f.operator()<max_dim>() with the least of the sizes that there are kernels for and heads of this width
/// fit.
template <class F>
void by_width(std::int64_t head_dim, const F& f) {
  if (head_dim <= 64) return f.template operator()<64>();
  if (head_dim <= 128) return f.template operator()<128>();
  f.template operator()<256>();
}

}  // namespace ztrain::kernels
