#pragma once
// What the attention kernels are handed, small enough for a launch on a GPU. Included by kernel sources only.

#include <cmath>
#include <cstdint>

#include "base/function.hpp"
#include "kernels/attention/attention_cached.hpp"
#include "kernels/attention/attention_part.hpp"

namespace ztrain::kernels {

/// Queries, keys, values, and how a score is made of a product; `caps` is whether the shape has a soft_cap.
template <class T>
struct ScoredArguments {
  AttentionShape shape;
  acc_t<T> scale, soft_cap;
  const T* q;
  const T* k;
  const T* v;

  /// Takes Input as AttentionInput or CachedAttentionInput.
  template <class Input>
  static ScoredArguments of(const Input& in) {
    const AttentionShape& s = in.shape;
    const auto scale = static_cast<acc_t<T>>(s.score_scale()), soft_cap = static_cast<acc_t<T>>(s.soft_cap);
    return {s, scale, soft_cap, in.q.data, in.k.data, in.v.data};
  }
  /// The score of a query and a key from their product.
  template <bool caps>
  ZTRAIN_FUNCTION acc_t<T> score(acc_t<T> product) const {
    if constexpr (caps)
      return soft_cap * std::tanh(scale * product / soft_cap);
    else
      return scale * product;
  }
  /// The derivative of a score by what it was before it was capped.
  template <bool caps>
  ZTRAIN_FUNCTION acc_t<T> slope(acc_t<T> score) const {
    return caps ? 1 - score / soft_cap * (score / soft_cap) : acc_t<T>(1);
  }
};

/// Forward and backward read these; AttentionInput says what the operands are.
template <class T>
struct AttentionArguments : ScoredArguments<T> {
  const std::int32_t* document_start;
};

template <class T>
AttentionArguments<T> arguments_of(const AttentionInput<T>& input) {
  return {ScoredArguments<T>::of(input), input.document_start.data};
}

template <class T>
struct AttentionForwardArguments : AttentionArguments<T> {
  T* o;
  acc_t<T>* lse;
  /// Written in place of o and lse if only a part of the keys is attended to; else null.
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
struct CachedArguments : ScoredArguments<T> {
  std::int64_t capacity;
  const std::int32_t* begin;
  const T* sinks;  ///< by head, or null
  T* o;

  /// The row of a token, and the first row that it sees.
  ZTRAIN_FUNCTION std::int64_t row_of(std::int64_t token) const { return *begin + token; }
  ZTRAIN_FUNCTION std::int64_t first_row(std::int64_t row) const {
    const std::int64_t window = this->shape.window;
    return window > 0 && row >= window ? row - window + 1 : 0;
  }
  /// A softmax of this head that has taken in the sink alone, if there is one and `begins`: its maximum, and
  /// its sum.
  ZTRAIN_FUNCTION void begin_softmax(std::int64_t head, bool begins, acc_t<T>& maximum, acc_t<T>& sum) const {
    if (sinks == nullptr || !begins) return;
    maximum = static_cast<acc_t<T>>(sinks[head]);
    sum = 1;
  }
};

template <class T>
CachedArguments<T> arguments_of(const CachedAttentionInput<T>& input, Matrix<T> o) {
  return {ScoredArguments<T>::of(input), input.k.rows / input.shape.kv_heads, input.begin.data,
          input.sinks.data, o.data};
}

/// f.operator()<max_dim>() with the least of the sizes that there are kernels for and heads of this width
/// fit.
template <class F>
void by_width(std::int64_t head_dim, const F& f) {
  if (head_dim <= 64) return f.template operator()<64>();
  if (head_dim <= 128) return f.template operator()<128>();
  f.template operator()<256>();
}

/// f.operator()<max_dim, caps>() as by_width does; caps: scores are capped.
template <class F>
void by_width_and_cap(const AttentionShape& s, const F& f) {
  by_width(s.head_dim, [&]<int max_dim>() {
    if (s.soft_cap > 0)
      f.template operator()<max_dim, true>();
    else
      f.template operator()<max_dim, false>();
  });
}

}  // namespace ztrain::kernels
