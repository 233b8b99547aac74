#include "kernels/attention/attention_plain.hpp"

#include "base/error.hpp"
#include "kernels/attention/attention_arguments.hpp"
#include "kernels/attention/attention_lanes.hpp"

namespace ztrain::kernels {
namespace {

/// Rows are [token, head].
template <class T, int max_dim>
struct Forward {
  AttentionArguments<T> a;
  T* o;
  acc_t<T>* lse;

  KOKKOS_INLINE_FUNCTION void operator()(const Warp& warp, std::int64_t row) const {
    using A = acc_t<T>;
    const AttentionShape& s = a.shape;
    const int dim = static_cast<int>(s.head_dim);
    const std::int64_t token = row / s.heads, head = row % s.heads, kv = head / (s.heads / s.kv_heads);
    Share<A, max_dim> q, key, value;
    Stream<A, max_dim> stream;
    stream.out.zero();
    warp.each([&](const int lane) { q.load(a.q + s.q_at(token, head), lane, dim); });
    for (std::int64_t j = first_key(s, a.document_start, token); j <= s.first_query + token; ++j) {
      const std::int64_t at = s.kv_at(j, kv);
      warp.each([&](const int lane) {
        key.load(a.k + at, lane, dim);
        value.load(a.v + at, lane, dim);
      });
      stream.add(a.scale * warp.template sum<A>([&](int) { return q.dot(key); }), value);
    }
    stream.out.scale(A(1) / stream.sum);
    warp.each([&](const int lane) { stream.out.store(o + s.o_at(token, head), lane, dim); });
    warp.once([&] { lse[row] = stream.maximum + std::log(stream.sum); });
  }
};

/// dq of a row [token, head]; leaves the row's delta for the other gradients.
template <class T, int max_dim>
struct QueryGradient {
  AttentionGradientArguments<T> a;
  T* dq;

  KOKKOS_INLINE_FUNCTION void operator()(const Warp& warp, std::int64_t row) const {
    using A = acc_t<T>;
    const AttentionShape& s = a.shape;
    const int dim = static_cast<int>(s.head_dim);
    const std::int64_t token = row / s.heads, head = row % s.heads, kv = head / (s.heads / s.kv_heads);
    const std::int64_t query = s.q_at(token, head), out = s.o_at(token, head);
    Share<A, max_dim> q, dout, key, value, sum;
    sum.zero();
    warp.each([&](const int lane) {
      q.load(a.q + query, lane, dim);
      dout.load(a.dout + out, lane, dim);
      value.load(a.o + out, lane, dim);
    });
    const A lse = a.lse[row], delta = warp.template sum<A>([&](int) { return dout.dot(value); });
    for (std::int64_t j = first_key(s, a.document_start, token); j <= s.first_query + token; ++j) {
      const std::int64_t at = s.kv_at(j, kv);
      warp.each([&](const int lane) {
        key.load(a.k + at, lane, dim);
        value.load(a.v + at, lane, dim);
      });
      const A p = std::exp(a.scale * warp.template sum<A>([&](int) { return q.dot(key); }) - lse);
      const A dp = warp.template sum<A>([&](int) { return dout.dot(value); });
      sum.add(p * (dp - delta) * a.scale, key);
    }
    warp.each([&](const int lane) { sum.store(dq + query, lane, dim); });
    warp.once([&] { a.delta[row] = delta; });
  }
};

/// dk and dv of a row [token, key-value head], over the queries that see it: those up to the first whose
/// first key is behind it.
template <class T, int max_dim>
struct KeyGradient {
  AttentionGradientArguments<T> a;
  T* dk;
  T* dv;

  KOKKOS_INLINE_FUNCTION void operator()(const Warp& warp, std::int64_t row) const {
    using A = acc_t<T>;
    const AttentionShape& s = a.shape;
    const int dim = static_cast<int>(s.head_dim);
    const std::int64_t j = row / s.kv_heads, kv = row % s.kv_heads, at = s.kv_at(j, kv);
    const std::int64_t group = s.heads / s.kv_heads, first = kv * group;
    Share<A, max_dim> key, value, q, dout, key_sum, value_sum;
    key_sum.zero();
    value_sum.zero();
    warp.each([&](const int lane) {
      key.load(a.k + at, lane, dim);
      value.load(a.v + at, lane, dim);
    });
    for (std::int64_t t = j < s.first_query ? 0 : j - s.first_query;
         t < s.tokens && first_key(s, a.document_start, t) <= j; ++t)
      for (std::int64_t head = first; head < first + group; ++head) {
        const std::int64_t query = t * s.heads + head;
        warp.each([&](const int lane) {
          q.load(a.q + s.q_at(t, head), lane, dim);
          dout.load(a.dout + s.o_at(t, head), lane, dim);
        });
        const A p = std::exp(a.scale * warp.template sum<A>([&](int) { return q.dot(key); }) - a.lse[query]);
        const A dp = warp.template sum<A>([&](int) { return dout.dot(value); });
        value_sum.add(p, dout);
        key_sum.add(p * (dp - a.delta[query]) * a.scale, q);
      }
    warp.each([&](const int lane) {
      key_sum.store(dk + at, lane, dim);
      value_sum.store(dv + at, lane, dim);
    });
  }
};

template <class T, int max_dim>
void backward(Exec& exec, const AttentionGradientArguments<T>& a, T* dq, T* dk, T* dv) {
  const AttentionShape& s = a.shape;
  for_warps(exec, s.tokens * s.heads, QueryGradient<T, max_dim>{a, dq});
  for_warps(exec, s.key_count() * s.kv_heads, KeyGradient<T, max_dim>{a, dk, dv});
}

}  // namespace

template <class T>
void attention_plain_forward(Exec& exec, const AttentionInput<T>& input, Matrix<T> o, Matrix<acc_t<T>> lse) {
  check<T>(input, o, lse);
  const AttentionShape& s = input.shape;
  const AttentionArguments<T> a = arguments_of(input);
  const std::int64_t rows = s.tokens * s.heads;
  if (s.head_dim <= 64) return for_warps(exec, rows, Forward<T, 64>{a, o.data, lse.data});
  if (s.head_dim <= 128) return for_warps(exec, rows, Forward<T, 128>{a, o.data, lse.data});
  for_warps(exec, rows, Forward<T, 256>{a, o.data, lse.data});
}

template <class T>
void attention_plain_backward(Exec& exec, const AttentionInput<T>& input, Matrix<const T> o,
                              Matrix<const acc_t<T>> lse, Matrix<const T> dout, Matrix<T> dq, Matrix<T> dk,
                              Matrix<T> dv, Vector<std::byte> workspace) {
  check<T>(input, o, lse);
  const AttentionShape& s = input.shape;
  const std::int64_t needed = s.tokens * s.heads * static_cast<std::int64_t>(sizeof(acc_t<T>));
  REQUIRE(workspace.count >= needed, "attention backward: the workspace has {} bytes, {} are needed",
          workspace.count, needed);
  const AttentionGradientArguments<T> a{arguments_of(input), o.data, lse.data, dout.data,
                                        reinterpret_cast<acc_t<T>*>(workspace.data)};
  if (s.head_dim <= 64) return backward<T, 64>(exec, a, dq.data, dk.data, dv.data);
  if (s.head_dim <= 128) return backward<T, 128>(exec, a, dq.data, dk.data, dv.data);
  backward<T, 256>(exec, a, dq.data, dk.data, dv.data);
}

template <class T>
using Backward = void(Exec&, const AttentionInput<T>&, Matrix<const T>, Matrix<const acc_t<T>>,
                      Matrix<const T>, Matrix<T>, Matrix<T>, Matrix<T>, Vector<std::byte>);

template void attention_plain_forward(Exec&, const AttentionInput<float>&, Matrix<float>, Matrix<float>);
template void attention_plain_forward(Exec&, const AttentionInput<bf16>&, Matrix<bf16>, Matrix<float>);
template void attention_plain_forward(Exec&, const AttentionInput<f16>&, Matrix<f16>, Matrix<float>);
template void attention_plain_forward(Exec&, const AttentionInput<double>&, Matrix<double>, Matrix<double>);
template Backward<float> attention_plain_backward<float>;
template Backward<bf16> attention_plain_backward<bf16>;
template Backward<f16> attention_plain_backward<f16>;
template Backward<double> attention_plain_backward<double>;

}  // namespace ztrain::kernels
