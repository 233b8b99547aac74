#include "kernels/attention/attention_plain.hpp"

#include "base/error.hpp"
#include "kernels/attention/attention_arguments.hpp"
#include "kernels/attention/attention_lanes.hpp"

namespace ztrain::kernels {
namespace {

/// Rows are [token, head].
template <class T, int max_dim, bool caps>
struct Forward {
  AttentionForwardArguments<T> a;

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
    if (a.resumes) {
      warp.each([&](const int lane) { stream.out.load(a.out + s.o_at(token, head), lane, dim); });
      stream.maximum = a.maximum[row];
      stream.sum = a.sum[row];
    }
    for (std::int64_t j = first_key(s, a.document_start, token); j < end; ++j) {
      if (!s.has_block(token, j)) continue;
      const std::int64_t at = s.kv_at(j, kv);
      warp.each([&](const int lane) {
        key.load(a.k + at, lane, dim);
        value.load(a.v + at, lane, dim);
      });
      stream.add(a.template score<caps>(warp.template sum<A>([&](int) { return q.dot(key); })), value);
    }
    if (a.out != nullptr) {
      warp.each([&](const int lane) { stream.out.store(a.out + s.o_at(token, head), lane, dim); });
      warp.once([&] {
        a.maximum[row] = stream.maximum;
        a.sum[row] = stream.sum;
      });
      return;
    }
    stream.out.scale(A(1) / stream.sum);
    warp.each([&](const int lane) { stream.out.store(a.o + s.o_at(token, head), lane, dim); });
    warp.once([&] { a.lse[row] = stream.maximum + std::log(stream.sum); });
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
template <class T, int max_dim, bool caps>
struct QueryGradient {
  AttentionGradientArguments<T> a;

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
      if (!s.has_block(token, j)) continue;
      const std::int64_t at = s.kv_at(j, kv);
      warp.each([&](const int lane) {
        key.load(a.k + at, lane, dim);
        value.load(a.v + at, lane, dim);
      });
      const A score = a.template score<caps>(warp.template sum<A>([&](int) { return q.dot(key); }));
      const A p = std::exp(score - lse);
      const A dp = warp.template sum<A>([&](int) { return dout.dot(value); });
      sum.add(p * (dp - delta) * a.scale * a.template slope<caps>(score), key);
    }
    warp.each([&](const int lane) {
      if (a.dq_sum != nullptr)
        sum.put(a.dq_sum + out, lane, dim, a.adds_to_queries);
      else
        sum.store(a.dq + query, lane, dim);
    });
    warp.once([&] { a.delta[row] = delta; });
  }
};

/// dk and dv of a row [token, key-value head], over the queries that see it: those up to the first whose
/// first key is behind it.
template <class T, int max_dim, bool caps>
struct KeyGradient {
  AttentionGradientArguments<T> a;

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
      for (std::int64_t head = first; s.has_block(t, j) && head < first + group; ++head) {
        const std::int64_t query = t * s.heads + head;
        warp.each([&](const int lane) {
          q.load(a.q + s.q_at(t, head), lane, dim);
          dout.load(a.dout + s.o_at(t, head), lane, dim);
        });
        const A score = a.template score<caps>(warp.template sum<A>([&](int) { return q.dot(key); }));
        const A p = std::exp(score - a.lse[query]);
        const A dp = warp.template sum<A>([&](int) { return dout.dot(value); });
        value_sum.add(p, dout);
        key_sum.add(p * (dp - a.delta[query]) * a.scale * a.template slope<caps>(score), q);
      }
    warp.each([&](const int lane) {
      if (a.dk_sum != nullptr) {
        key_sum.put(a.dk_sum + at, lane, dim, a.adds_to_keys);
        value_sum.put(a.dv_sum + at, lane, dim, a.adds_to_keys);
      } else {
        key_sum.store(a.dk + at, lane, dim);
        value_sum.store(a.dv + at, lane, dim);
      }
    });
  }
};

template <class T>
void forward(Exec& exec, const AttentionForwardArguments<T>& a) {
  by_width_and_cap(a.shape, [&]<int max_dim, bool caps>() {
    for_warps(exec, a.shape.tokens * a.shape.heads, Forward<T, max_dim, caps>{a});
  });
}

template <class T>
void backward(Exec& exec, const AttentionGradientArguments<T>& a) {
  by_width_and_cap(a.shape, [&]<int max_dim, bool caps>() {
    for_warps(exec, a.shape.tokens * a.shape.heads, QueryGradient<T, max_dim, caps>{a});
    for_warps(exec, a.shape.key_count() * a.shape.kv_heads, KeyGradient<T, max_dim, caps>{a});
  });
}

}  // namespace

template <class T>
void attention_plain_forward(Exec& exec, const AttentionInput<T>& input, Matrix<T> o, Matrix<acc_t<T>> lse) {
  check_attention<T>(input, o, lse);
  forward<T>(exec, {arguments_of(input), o.data, lse.data});
}

template <class T>
void attention_plain_part(Exec& exec, const AttentionInput<T>& input, const AttentionSums<acc_t<T>>& sums,
                          bool resumes) {
  check_part_sums<T>(input, sums);
  forward<T>(exec, part_arguments(input, sums, resumes));
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
  check_attention<T>(input, o, lse);
  const AttentionShape& s = input.shape;
  const std::int64_t needed = s.tokens * s.heads * static_cast<std::int64_t>(sizeof(acc_t<T>));
  REQUIRE(workspace.count >= needed, "attention backward: the workspace has {} bytes, {} are needed",
          workspace.count, needed);
  auto* const delta = reinterpret_cast<acc_t<T>*>(workspace.data);
  backward<T>(exec, {arguments_of(input), o.data, lse.data, dout.data, delta, dq.data, dk.data, dv.data});
}

template <class T>
void attention_plain_part_backward(Exec& exec, const AttentionInput<T>& input, Matrix<const T> o,
                                   Matrix<const acc_t<T>> lse, Matrix<const T> dout,
                                   const PartGradients<acc_t<T>>& gradients, Vector<std::byte> workspace) {
  check_part_gradients<T>(input, o, lse, gradients, workspace);
  backward<T>(exec, part_arguments(input, o, lse, dout, gradients, workspace));
}

ZTRAIN_INSTANCES(attention_plain_forward)
ZTRAIN_INSTANCES(attention_plain_backward)
ZTRAIN_INSTANCES(attention_plain_part)
ZTRAIN_INSTANCES(attention_plain_part_backward)
ZTRAIN_INSTANCES(attention_merge)

}  // namespace ztrain::kernels
