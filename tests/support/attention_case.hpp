#pragma once
// Inputs of attention for kernel tests.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/attention/attention.hpp"
#include "kernels/attention/reference.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::test {

/// Scales and caps of scores beside the usual ones: each changes the results of small inputs.
inline AttentionShape capped(AttentionShape s, double soft_cap, double scale = 0) {
  s.soft_cap = soft_cap;
  s.scale = scale;
  return s;
}

/// What kernels find on the stack: NaN, of any type.
[[gnu::noinline]] inline void spoil_stack() {
  unsigned char bytes[4 << 20];
  std::memset(bytes, 0xff, sizeof(bytes));
  __asm__ volatile("" : : "r"(bytes) : "memory");  // it stays written, though nobody reads it
}

/// Of documents of these lengths; the last takes what is left of the tokens.
inline Array<std::int32_t> document_starts(std::int64_t tokens, const std::vector<std::int64_t>& lengths) {
  Array<std::int32_t> result;
  std::size_t document = 0;
  while (static_cast<std::int64_t>(result.size()) < tokens) {
    const auto begin = static_cast<std::int32_t>(result.size());
    const std::int64_t left = tokens - begin;
    const std::int64_t length = document < lengths.size() ? std::min(left, lengths[document++]) : left;
    result.insert(result.end(), static_cast<std::size_t>(length), begin);
  }
  return result;
}

/// Where q, k and v lie, and their gradients will; rows as the shape says.
template <class T>
struct AttentionPlaces {
  AttentionShape shape;
  const T* q;
  const T* k;
  const T* v;
  T* dq;
  T* dk;
  T* dv;
};

/// Inputs of one case, in T and as the same numbers in float64.
template <class T>
struct AttentionCase {
  AttentionShape shape;
  Array<T> q, k, v, dout;
  std::vector<double> q64, k64, v64;
  Array<std::int32_t> start;

  AttentionCase(const AttentionShape& s, const std::vector<std::int64_t>& documents)
      : shape(s),
        q(random<T>(s.tokens * s.heads * s.head_dim, 1, 2)),
        k(random<T>(s.tokens * s.kv_heads * s.head_dim, 2)),
        v(random<T>(s.tokens * s.kv_heads * s.head_dim, 3)),
        dout(random<T>(s.tokens * s.heads * s.head_dim, 4)),
        q64(doubles(q)),
        k64(doubles(k)),
        v64(doubles(v)),
        start(document_starts(s.tokens, documents)) {}

  kernels::AttentionInput<T> input() const { return of<T>(q, k, v); }
  /// Of these places instead of q, k and v.
  kernels::AttentionInput<T> input(const AttentionPlaces<T>& p) const {
    const auto rows = [&](const T* data, std::int64_t heads) {
      return Matrix<const T>{data, shape.tokens, heads * shape.head_dim};
    };
    return {p.shape, rows(p.q, shape.heads), rows(p.k, shape.kv_heads), rows(p.v, shape.kv_heads),
            view(start)};
  }
  kernels::AttentionInput<double> input64() const { return of<double>(q64, k64, v64); }

  template <class U, class V>
  kernels::AttentionInput<U> of(const V& a, const V& b, const V& c) const {
    return {shape, matrix(a, shape.tokens), matrix(b, shape.tokens), matrix(c, shape.tokens), view(start)};
  }
};

/// What forward and backward give.
template <class T>
struct AttentionRun {
  Array<T> o, dq, dk, dv;
  Array<acc_t<T>> lse;

  explicit AttentionRun(const AttentionCase<T>& c)
      : o(c.q.size()),
        dq(c.q.size()),
        dk(c.k.size()),
        dv(c.k.size()),
        lse(static_cast<std::size_t>(c.shape.tokens * c.shape.heads)) {}
};

template <class T>
void expect_same_bits(const AttentionRun<T>& a, const AttentionRun<T>& b) {
  EXPECT_TRUE(same_bits(a.o, b.o) && same_bits(a.lse, b.lse));
  EXPECT_TRUE(same_bits(a.dq, b.dq) && same_bits(a.dk, b.dk) && same_bits(a.dv, b.dv));
}

/// launch(places, run) computes o and lse, then the gradients where `places` wants them.
template <class T, class Launch>
AttentionRun<T> run_dense(const AttentionCase<T>& c, const Launch& launch) {
  AttentionRun<T> r(c);
  launch(
      AttentionPlaces<T>{c.shape, c.q.data(), c.k.data(), c.v.data(), r.dq.data(), r.dk.data(), r.dv.data()},
      r);
  return r;
}

/// Three matrices as columns of one, [tokens, row]: first of q, then `pad` columns that are nobody's, then of
/// k and of v.
template <class T>
class AttentionColumns {
 public:
  AttentionColumns(const AttentionShape& s, std::int64_t pad, T fill)
      : tokens_(s.tokens),
        q_cols_(s.heads * s.head_dim),
        kv_cols_(s.kv_heads * s.head_dim),
        k_(q_cols_ + pad),
        row_(k_ + 2 * kv_cols_),
        all_(static_cast<std::size_t>(s.tokens * row_), fill) {}

  std::int64_t row() const { return row_; }
  T* q() { return all_.data(); }
  T* k() { return all_.data() + k_; }
  T* v() { return all_.data() + k_ + kv_cols_; }

  void put(const Array<T>& q, const Array<T>& k, const Array<T>& v) {
    each(q_cols_, [&](std::int64_t i, std::int64_t at) { all_[at] = q[i]; });
    each(kv_cols_, [&](std::int64_t i, std::int64_t at) { all_[k_ + at] = k[i]; });
    each(kv_cols_, [&](std::int64_t i, std::int64_t at) { all_[k_ + kv_cols_ + at] = v[i]; });
  }
  void take(Array<T>& q, Array<T>& k, Array<T>& v) const {
    each(q_cols_, [&](std::int64_t i, std::int64_t at) { q[i] = all_[at]; });
    each(kv_cols_, [&](std::int64_t i, std::int64_t at) { k[i] = all_[k_ + at]; });
    each(kv_cols_, [&](std::int64_t i, std::int64_t at) { v[i] = all_[k_ + kv_cols_ + at]; });
  }
  /// The columns that are nobody's.
  Array<T> pad() const {
    Array<T> result(static_cast<std::size_t>(tokens_ * (k_ - q_cols_)));
    each(k_ - q_cols_, [&](std::int64_t i, std::int64_t at) { result[i] = all_[q_cols_ + at]; });
    return result;
  }

 private:
  /// f(i, place) for element i of a dense matrix, which here lies `place` behind the matrix' first.
  template <class F>
  void each(std::int64_t cols, const F& f) const {
    for (std::int64_t i = 0; i < tokens_ * cols; ++i) f(i, i / cols * row_ + i % cols);
  }

  std::int64_t tokens_, q_cols_, kv_cols_, k_, row_;
  Array<T> all_;
};

/// As run_dense, of columns of one matrix. Nobody's columns hold NaN, and must afterwards too, bit for bit.
template <class T, class Launch>
AttentionRun<T> run_columns(const AttentionCase<T>& c, std::int64_t pad, const Launch& launch) {
  const T poison(std::numeric_limits<float>::quiet_NaN());
  AttentionColumns<T> in(c.shape, pad, poison), gradients(c.shape, pad, poison);
  in.put(c.q, c.k, c.v);
  const auto before = in;
  AttentionPlaces<T> places{c.shape, in.q(), in.k(), in.v(), gradients.q(), gradients.k(), gradients.v()};
  places.shape.row = in.row();
  AttentionRun<T> r(c);
  launch(places, r);
  gradients.take(r.dq, r.dk, r.dv);
  EXPECT_TRUE(same_bits(gradients.pad(), before.pad())) << "columns between the gradients were written";
  AttentionRun<T> inputs(c);
  in.take(inputs.dq, inputs.dk, inputs.dv);
  EXPECT_TRUE(same_bits(inputs.dq, c.q) && same_bits(inputs.dk, c.k) && same_bits(inputs.dv, c.v));
  return r;
}

/// A part of the queries of a case and all of its keys; what it gives to dk and dv is its part of a sum.
template <class T>
struct AttentionPart {
  kernels::AttentionInput<T> input;
  Matrix<T> o;
  Matrix<acc_t<T>> lse;
  Matrix<const T> dout;
  Matrix<T> dq, dk, dv;
};

/// Where parts of the queries end: equal and unequal ones, of whole blocks and not, some of one token.
inline const std::vector<std::vector<std::int64_t>> parts_of_queries = {
    {100, 200}, {64, 128, 192, 256}, {1, 2, 65, 129, 200}, {130, 131}, {63, 200}};

/// launch(part) computes o, lse and the gradients of a part.
template <class T, class Launch>
AttentionRun<T> run_parts(const AttentionCase<T>& c, const std::vector<std::int64_t>& ends,
                          const Launch& launch) {
  const T poison(std::numeric_limits<float>::quiet_NaN());
  const AttentionShape& whole = c.shape;
  const std::int64_t q_cols = whole.heads * whole.head_dim, kv_cols = whole.kv_heads * whole.head_dim;
  AttentionRun<T> r(c);
  std::vector<double> dk(c.k.size()), dv(c.k.size());
  std::int64_t begin = 0;
  for (const std::int64_t end : ends) {
    AttentionShape s = whole;
    s.tokens = end - begin;
    s.keys = whole.tokens;
    s.first_query = begin;
    Array<T> part_dk(c.k.size(), poison), part_dv(c.k.size(), poison);
    launch(AttentionPart<T>{{s,
                             {c.q.data() + begin * q_cols, s.tokens, q_cols},
                             matrix(c.k, whole.tokens),
                             matrix(c.v, whole.tokens),
                             {c.start.data() + begin, s.tokens}},
                            {r.o.data() + begin * q_cols, s.tokens, q_cols},
                            {r.lse.data() + begin * s.heads, s.tokens, s.heads},
                            {c.dout.data() + begin * q_cols, s.tokens, q_cols},
                            {r.dq.data() + begin * q_cols, s.tokens, q_cols},
                            {part_dk.data(), whole.tokens, kv_cols},
                            {part_dv.data(), whole.tokens, kv_cols}});
    for (std::size_t i = 0; i < dk.size(); ++i) {
      dk[i] += static_cast<double>(part_dk[i]);
      dv[i] += static_cast<double>(part_dv[i]);
    }
    begin = end;
  }
  for (std::size_t i = 0; i < dk.size(); ++i) {
    r.dk[i] = T(static_cast<acc_t<T>>(dk[i]));
    r.dv[i] = T(static_cast<acc_t<T>>(dv[i]));
  }
  return r;
}

/// Of outputs of size one. In 16 bits, backward reads the rounded o.
template <class T>
constexpr double forward_error = std::is_same_v<T, double> ? 1e-13 : 5e-6;
/// The processor's products of bf16 read rounded probabilities: each is off by up to 2^-9 of itself.
template <class T>
double output_error() {
  return std::is_same_v<T, bf16> && native_products() ? 4e-3 : forward_error<T>;
}
template <class T>
constexpr double backward_error = std::is_same_v<T, double>  ? 1e-12
                                  : std::is_same_v<T, float> ? 4e-5
                                  : std::is_same_v<T, f16>   ? 5e-3
                                                             : 4e-2;

template <class T>
void expect_reference(const AttentionCase<T>& c, const AttentionRun<T>& r, double forward = forward_error<T>,
                      double backward = backward_error<T>) {
  const double output = std::max(forward, output_error<T>());
  const auto expected = kernels::reference::attention(c.input64());
  const auto gradients = kernels::reference::attention_gradients(c.input64(), doubles(c.dout));
  expect_close(r.o, expected.o, output, "o");
  expect_close(r.lse, expected.lse, forward, "lse");
  expect_close(r.dq, gradients.q, backward, "dq");
  expect_close(r.dk, gradients.k, 2 * backward, "dk");
  expect_close(r.dv, gradients.v, backward, "dv");
}

}  // namespace ztrain::test
