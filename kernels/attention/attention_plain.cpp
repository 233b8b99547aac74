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
  /// Of a part of the keys, in place of o and lse; else null.
  acc_t<T>* out = nullptr;
  acc_t<T>* maximum = nullptr;
  acc_t<T>* sum = nullptr;
  bool resumes = false;

  KOKKOS_INLINE_FUNCTION void operator()(const Warp& warp, std::int64_t row) const {
    using A = acc_t<T>;
    const AttentionShape& s = a.shape;
    const int dim = static_cast<int>(s.head_dim);
    const std::int64_t token = row / s.heads, head = row % s.heads, kv = head / (s.heads / s.kv_heads);
    Share<A, max_dim> q, key, value;
    Stream<A, max_dim> stream;
    stream.out.zero();
    warp.each([&](const int lane) { q.load(a.q + s.q_at(token, head), lane, dim); });
    const std::int64_t end = end_of_keys(s, token + 1);
    if (resumes) {
      warp.each([&](const int lane) { stream.out.load(out + s.o_at(token, head), lane, dim); });
      stream.maximum = maximum[row];
      stream.sum = sum[row];
    }
    for (std::int64_t j = first_key(s, a.document_start, token); j < end; ++j) {
      const std::int64_t at = s.kv_at(j, kv);
      warp.each([&](const int lane) {
        key.load(a.k + at, lane, dim);
        value.load(a.v + at, lane, dim);
      });
      stream.add(a.scale * warp.template sum<A>([&](int) { return q.dot(key); }), value);
    }
    if (out != nullptr) {
      warp.each([&](const int lane) { stream.out.store(out + s.o_at(token, head), lane, dim); });
      warp.once([&] {
        maximum[row] = stream.maximum;
        sum[row] = stream.sum;
      });
      return;
    }
    stream.out.scale(A(1) / stream.sum);
    warp.each([&](const int lane) { stream.out.store(o + s.o_at(token, head), lane, dim); });
    warp.once([&] { lse[row] = stream.maximum + std::log(stream.sum); });
  }
};

/// Rows are [token, head].
template <class T>
struct Merge {
  const acc_t<T>* out;
  const acc_t<T>* maximum;
  const acc_t<T>* sum;
  T* o;
  acc_t<T>* lse;
  acc_t<T> unit;
  std::int64_t head_dim;

  KOKKOS_INLINE_FUNCTION void operator()(const Warp& warp, std::int64_t row) const {
    const acc_t<T> inverse = acc_t<T>(1) / sum[row];
    warp.each([&](const int lane) {
      for (std::int64_t d = lane; d < head_dim; d += Warp::width)
        o[row * head_dim + d] = static_cast<T>(out[row * head_dim + d] * inverse);
    });
    warp.once([&] { lse[row] = unit * maximum[row] + std::log(sum[row]); });
  }
};

/// dq of a row [token, head]; leaves the row's delta for the other gradients.
template <class T, int max_dim>
struct QueryGradient {
  AttentionGradientArguments<T> a;
  T* dq;
  acc_t<T>* dq_sum = nullptr;  ///< of a part of the keys, in place of dq; else null
  bool adds = false;

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
    const std::int64_t end = end_of_keys(s, token + 1);
    for (std::int64_t j = first_key(s, a.document_start, token); j < end; ++j) {
      const std::int64_t at = s.kv_at(j, kv);
      warp.each([&](const int lane) {
        key.load(a.k + at, lane, dim);
        value.load(a.v + at, lane, dim);
      });
      const A p = std::exp(a.scale * warp.template sum<A>([&](int) { return q.dot(key); }) - lse);
      const A dp = warp.template sum<A>([&](int) { return dout.dot(value); });
      sum.add(p * (dp - delta) * a.scale, key);
    }
    warp.each([&](const int lane) {
      if (dq_sum != nullptr)
        sum.put(dq_sum + out, lane, dim, adds);
      else
        sum.store(dq + query, lane, dim);
    });
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
  /// Of a part of the keys, in place of dk and dv; else null.
  acc_t<T>* dk_sum = nullptr;
  acc_t<T>* dv_sum = nullptr;
  bool adds = false;

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
      if (dk_sum != nullptr) {
        key_sum.put(dk_sum + at, lane, dim, adds);
        value_sum.put(dv_sum + at, lane, dim, adds);
      } else {
        key_sum.store(dk + at, lane, dim);
        value_sum.store(dv + at, lane, dim);
      }
    });
  }
};

template <class T, int max_dim>
void forward(Exec& exec, const AttentionArguments<T>& a, T* o, acc_t<T>* lse,
             const AttentionSums<acc_t<T>>& sums, bool resumes) {
  for_warps(exec, a.shape.tokens * a.shape.heads,
            Forward<T, max_dim>{a, o, lse, sums.out.data, sums.maximum.data, sums.sum.data, resumes});
}
template <class T>
void forward_by_width(Exec& exec, const AttentionArguments<T>& a, T* o, acc_t<T>* lse,
                      const AttentionSums<acc_t<T>>& sums, bool resumes) {
  if (a.shape.head_dim <= 64) return forward<T, 64>(exec, a, o, lse, sums, resumes);
  if (a.shape.head_dim <= 128) return forward<T, 128>(exec, a, o, lse, sums, resumes);
  forward<T, 256>(exec, a, o, lse, sums, resumes);
}

/// Where gradients go: of all keys, or of a part.
template <class T>
struct Gradients {
  T* dq = nullptr;
  T* dk = nullptr;
  T* dv = nullptr;
  PartGradients<acc_t<T>> part{};
};

template <class T, int max_dim>
void backward(Exec& exec, const AttentionGradientArguments<T>& a, const Gradients<T>& g) {
  const AttentionShape& s = a.shape;
  for_warps(exec, s.tokens * s.heads,
            QueryGradient<T, max_dim>{a, g.dq, g.part.dq.data, g.part.adds_to_queries});
  for_warps(exec, s.key_count() * s.kv_heads,
            KeyGradient<T, max_dim>{a, g.dk, g.dv, g.part.dk.data, g.part.dv.data, g.part.adds_to_keys});
}
template <class T>
void backward_by_width(Exec& exec, const AttentionGradientArguments<T>& a, const Gradients<T>& g) {
  if (a.shape.head_dim <= 64) return backward<T, 64>(exec, a, g);
  if (a.shape.head_dim <= 128) return backward<T, 128>(exec, a, g);
  backward<T, 256>(exec, a, g);
}

}  // namespace

template <class T>
void attention_plain_forward(Exec& exec, const AttentionInput<T>& input, Matrix<T> o, Matrix<acc_t<T>> lse) {
  check<T>(input, o, lse);
  forward_by_width<T>(exec, arguments_of(input), o.data, lse.data, {}, false);
}

template <class T>
void attention_plain_part(Exec& exec, const AttentionInput<T>& input, const AttentionSums<acc_t<T>>& sums,
                          bool resumes) {
  check_part<T>(input, sums);
  forward_by_width<T>(exec, arguments_of(input), nullptr, nullptr, sums, resumes);
}

template <class T>
void attention_merge(Exec& exec, const AttentionSums<const acc_t<T>>& sums, Matrix<T> o, Matrix<acc_t<T>> lse,
                     double unit) {
  const auto like = [](const auto& a, const auto& b) { return a.rows == b.rows && a.cols == b.cols; };
  REQUIRE(like(sums.out, o) && like(sums.maximum, lse) && like(sums.sum, lse) && o.rows == lse.rows &&
              o.cols % lse.cols == 0,
          "attention: sums [{}, {}] of {} heads do not fit o [{}, {}] and lse [{}, {}]", sums.out.rows,
          sums.out.cols, sums.sum.cols, o.rows, o.cols, lse.rows, lse.cols);
  for_warps(exec, lse.rows * lse.cols,
            Merge<T>{sums.out.data, sums.maximum.data, sums.sum.data, o.data, lse.data,
                     static_cast<acc_t<T>>(unit), o.cols / lse.cols});
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
  backward_by_width<T>(exec, a, {dq.data, dk.data, dv.data});
}

template <class T>
void attention_plain_part_backward(Exec& exec, const AttentionInput<T>& input, Matrix<const T> o,
                                   Matrix<const acc_t<T>> lse, Matrix<const T> dout,
                                   const PartGradients<acc_t<T>>& gradients, Vector<std::byte> workspace) {
  check_part<T>(input, o, lse, gradients, workspace);
  const AttentionGradientArguments<T> a{arguments_of(input), o.data, lse.data, dout.data,
                                        reinterpret_cast<acc_t<T>*>(workspace.data)};
  backward_by_width<T>(exec, a, {nullptr, nullptr, nullptr, gradients});
}

template <class T>
using Part = void(Exec&, const AttentionInput<T>&, const AttentionSums<acc_t<T>>&, bool);
template <class T>
using PartBackward = void(Exec&, const AttentionInput<T>&, Matrix<const T>, Matrix<const acc_t<T>>,
                          Matrix<const T>, const PartGradients<acc_t<T>>&, Vector<std::byte>);
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
template Part<float> attention_plain_part<float>;
template Part<bf16> attention_plain_part<bf16>;
template Part<f16> attention_plain_part<f16>;
template Part<double> attention_plain_part<double>;
template PartBackward<float> attention_plain_part_backward<float>;
template PartBackward<bf16> attention_plain_part_backward<bf16>;
template PartBackward<f16> attention_plain_part_backward<f16>;
template PartBackward<double> attention_plain_part_backward<double>;

template <class T>
using MergeOf = void(Exec&, const AttentionSums<const acc_t<T>>&, Matrix<T>, Matrix<acc_t<T>>, double);
template MergeOf<float> attention_merge<float>;
template MergeOf<bf16> attention_merge<bf16>;
template MergeOf<f16> attention_merge<f16>;
template MergeOf<double> attention_merge<double>;

}  // namespace ztrain::kernels
