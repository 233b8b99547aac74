#pragma once
// Norms by the one thread of a CPU. Included only by sources named *_reduce.cpp, whose sums may be reordered.
// The arithmetic of each form of a norm (NormForm) is in rmsnorm_threads.hpp.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/launch/wide.hpp"
#include "kernels/norm/rmsnorm_threads.hpp"

namespace ztrain::kernels {

// A row is one call of these functions. They are not inlined: where sums may be reordered, two
// inlined copies may order them differently, and the fused forward would then differ from the plain one in
// the last bit.

template <class T>
[[gnu::noinline]] acc_t<T> row_mean(const T* __restrict x, std::int64_t d) {
  acc_t<T> sum = 0;
  for (std::int64_t i = 0; i < d; ++i) sum += load(x[i]);
  return sum / static_cast<acc_t<T>>(d);
}

template <NormForm form, class T>
[[gnu::noinline]] acc_t<T> row_rstd(const T* __restrict x, std::int64_t d, acc_t<T> eps, acc_t<T> mean) {
  acc_t<T> sum = 0;
  for (std::int64_t i = 0; i < d; ++i) sum += norm_value<form>(x[i], mean) * norm_value<form>(x[i], mean);
  return acc_t<T>(1) / std::sqrt(sum / static_cast<acc_t<T>>(d) + eps);
}

template <NormForm form, class T>
[[gnu::noinline]] void scale_row(const T* __restrict x, const T* __restrict weight, acc_t<T> rstd,
                                 T* __restrict y, std::int64_t d, const T* __restrict bias, acc_t<T> mean) {
  if constexpr (form == NormForm::centred)
    for (std::int64_t i = 0; i < d; ++i)
      y[i] = static_cast<T>((load(x[i]) - mean) * rstd * load(weight[i]) + load(bias[i]));
  else
    for (std::int64_t i = 0; i < d; ++i) y[i] = static_cast<T>(load(x[i]) * rstd * gain<form>(weight[i]));
}

/// x and weight are as they are multiplied: less the mean, and the gain.
template <bool with_bias, class T>
[[gnu::noinline]] void scale_wide_row(const float* __restrict x, const float* __restrict weight, float rstd,
                                      T* __restrict y, std::int64_t d, const float* __restrict bias) {
  for_groups(d, [&](std::int64_t begin, auto n) {
    float scaled[wide_group];
    if constexpr (with_bias)
      for (std::int64_t i = 0; i < n; ++i)
        scaled[i] = x[begin + i] * rstd * weight[begin + i] + bias[begin + i];
    else
      for (std::int64_t i = 0; i < n; ++i) scaled[i] = x[begin + i] * rstd * weight[begin + i];
    narrow(scaled, y + begin, n);
  });
}

/// r may be a or b: each element is read before it is written, so the loop carries no dependence, which the
/// pragma tells the compiler.
template <class T>
KOKKOS_INLINE_FUNCTION void sum_row(const T* a, const T* b, T* r, std::int64_t d) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < d; ++i) r[i] = static_cast<T>(load(a[i]) + load(b[i]));
}

/// sum of dy * gain * value, the projection of the gradient on the row.
template <NormForm form, class T>
[[gnu::noinline]] acc_t<T> row_projection(const T* __restrict x, const T* __restrict weight,
                                          const T* __restrict dy, std::int64_t d, acc_t<T> mean) {
  acc_t<T> sum = 0;
  for (std::int64_t i = 0; i < d; ++i)
    sum += load(dy[i]) * gain<form>(weight[i]) * norm_value<form>(x[i], mean);
  return sum;
}

/// sum of dy * weight.
template <class T>
[[gnu::noinline]] acc_t<T> row_total(const T* __restrict weight, const T* __restrict dy, std::int64_t d) {
  acc_t<T> sum = 0;
  for (std::int64_t i = 0; i < d; ++i) sum += load(dy[i]) * load(weight[i]);
  return sum;
}

/// dx may be dy or addend, as above; partial never overlaps the others.
template <NormForm form, bool with_addend, class T>
KOKKOS_INLINE_FUNCTION void backward_row(const T* __restrict x, const T* __restrict weight, const T* dy,
                                         const T* addend, const RowFactors<acc_t<T>>& factors, T* dx,
                                         acc_t<T>* __restrict partial, std::int64_t d) {
  const auto [mean, rstd, along, shift] = factors;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < d; ++i) {
    const acc_t<T> gradient = load(dy[i]);
    const acc_t<T> value = norm_value<form>(x[i], mean);
    acc_t<T> result = gradient * gain<form>(weight[i]) * rstd;
    if constexpr (form != NormForm::scaled) result -= value * along;
    if constexpr (form == NormForm::centred) result -= shift;
    if constexpr (with_addend) result += load(addend[i]);
    partial[i] += gradient * value * rstd;
    dx[i] = static_cast<T>(result);
  }
}

/// Rows of 16-bit floats up to this width are widened; their weight once for a block of rows.
inline constexpr std::int64_t most_wide = 4096;

/// Rows whose sums are formed side by side, since each addition waits for the one before it in its row.
inline constexpr std::int64_t rows_summed = 4;

struct WideRows {
  float at[rows_summed][most_wide];
};

/// Returns the form that applies to a weight that widen_gain() has converted.
constexpr NormForm widened(NormForm form) {
  return form == NormForm::one_plus ? NormForm::plain : form;
}
template <NormForm form, class T>
void widen_gain(const T* __restrict weight, float* __restrict to, std::int64_t d) {
  widen(weight, to, d);
  if constexpr (form == NormForm::one_plus)
    for (std::int64_t i = 0; i < d; ++i) to[i] = gain<form>(to[i]);
}

/// row_rstd of each row.
[[gnu::noinline]] inline void rows_rstd(const WideRows& x, std::int64_t d, float eps,
                                        float* __restrict rstd) {
  float sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
  for (std::int64_t i = 0; i < d; ++i) {
    sum0 += x.at[0][i] * x.at[0][i];
    sum1 += x.at[1][i] * x.at[1][i];
    sum2 += x.at[2][i] * x.at[2][i];
    sum3 += x.at[3][i] * x.at[3][i];
  }
  const float sums[rows_summed] = {sum0, sum1, sum2, sum3};
  for (std::int64_t r = 0; r < rows_summed; ++r)
    rstd[r] = 1 / std::sqrt(sums[r] / static_cast<float>(d) + eps);
}

/// A block of rows of the forward.
template <NormForm form, bool with_addend, class T>
struct ForwardRows {
  using A = acc_t<T>;
  NormArrays<T> a;

  void operator()(std::int64_t begin, std::int64_t count) const {
    if constexpr (widens<T>)
      if (a.d <= most_wide) return wide(begin, count);
    for (std::int64_t row = begin; row < begin + count; ++row) {
      const std::int64_t at = row * a.d;
      if constexpr (with_addend) sum_row<T>(a.x + at, a.addend + at, a.sum + at, a.d);
      const T* const x = (with_addend ? a.sum : a.x) + at;
      A mean = 0, rstd = 0;
      if constexpr (form == NormForm::centred) a.mean[row] = mean = row_mean<T>(x, a.d);
      if constexpr (form == NormForm::scaled)
        rstd = rstd_of_squares(a, row);
      else
        a.rstd[row] = rstd = row_rstd<form, T>(x, a.d, a.eps, mean);
      scale_row<form, T>(x, a.weight, rstd, a.y + at, a.d, a.bias, mean);
    }
  }

  void wide(std::int64_t begin, std::int64_t count) const {
    if (a.d <= 0) return;  // else a compiler may think that x is read before it is written
    float weight[most_wide], bias[form == NormForm::centred ? most_wide : 1] = {};
    WideRows x;
    widen_gain<form>(a.weight, weight, a.d);
    if constexpr (form == NormForm::centred) widen(a.bias, bias, a.d);
    for (std::int64_t row = begin; row < begin + count; row += rows_summed) {
      const std::int64_t rows = std::min(rows_summed, begin + count - row);
      for (std::int64_t r = 0; r < rows; ++r) read_row(row + r, x.at[r]);
      for (std::int64_t r = rows; r < rows_summed; ++r) std::fill_n(x.at[r], a.d, 0.0f);
      float rstd[rows_summed];
      if constexpr (form != NormForm::scaled) rows_rstd(x, a.d, a.eps, rstd);
      for (std::int64_t r = 0; r < rows; ++r) {
        if constexpr (form == NormForm::scaled)
          rstd[r] = rstd_of_squares(a, row + r);
        else
          a.rstd[row + r] = rstd[r];
        scale_wide_row<form == NormForm::centred>(x.at[r], weight, rstd[r], a.y + (row + r) * a.d, a.d, bias);
      }
    }
  }

  /// x: the row that is normalised, widened, less its mean where that is asked for.
  void read_row(std::int64_t row, float* x) const {
    const std::int64_t at = row * a.d;
    for_groups(a.d, [&](std::int64_t i, auto n) {
      widen(a.x + at + i, x + i, n);
      if constexpr (with_addend) {
        float other[wide_group];
        widen(a.addend + at + i, other, n);
        sum_row<float>(x + i, other, other, n);
        narrow(other, a.sum + at + i, n);
        widen(a.sum + at + i, x + i, n);
      }
    });
    if constexpr (form == NormForm::centred) {
      const float mean = a.mean[row] = row_mean<float>(x, a.d);
      for (std::int64_t i = 0; i < a.d; ++i) x[i] -= mean;
    }
  }
};

/// A block of rows of the backward.
template <NormForm form, bool with_addend, class T>
struct BackwardBlock {
  using A = acc_t<T>;
  NormGradientArrays<T> a;
  std::int64_t height;
  A* partials;

  void operator()(std::int64_t block) const {
    A* const partial = partials + block * a.d;
    for (std::int64_t i = 0; i < a.d; ++i) partial[i] = 0;
    const std::int64_t begin = block * height;
    const std::int64_t end = begin + height < a.rows ? begin + height : a.rows;
    if constexpr (widens<T>)
      if (a.d <= most_wide) return wide(begin, end, partial);
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * a.d;
      const T* const addend = a.addend + (with_addend ? at : 0);
      gradients<form>(row, a.x + at, a.weight, a.dy + at, addend, a.dx + at, partial);
    }
  }

  void wide(std::int64_t begin, std::int64_t end, A* partial) const {
    float weight[most_wide], x[most_wide], dy[most_wide], addend[most_wide];
    widen_gain<form>(a.weight, weight, a.d);
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * a.d;
      widen(a.x + at, x, a.d);
      widen(a.dy + at, dy, a.d);
      if constexpr (with_addend) widen(a.addend + at, addend, a.d);
      gradients<widened(form)>(row, x, weight, dy, addend, dy, partial);
      narrow(dy, a.dx + at, a.d);
    }
  }

  /// E: T, or what its elements have been widened to.
  template <NormForm as, class E>
  void gradients(std::int64_t row, const E* x, const E* weight, const E* dy, const E* addend, E* dx,
                 A* partial) const {
    A mean = 0, rstd = 0, total = 0;
    if constexpr (as == NormForm::centred) mean = a.mean[row];
    if constexpr (as == NormForm::scaled)
      rstd = rstd_of_squares(a, row);
    else
      rstd = a.rstd[row];
    const A projection = row_projection<as, E>(x, weight, dy, a.d, mean);
    if constexpr (as == NormForm::centred) total = row_total<E>(weight, dy, a.d);
    if constexpr (as == NormForm::scaled) a.dsquares[row] = squares_gradient(a, rstd, projection);
    backward_row<as, with_addend, E>(x, weight, dy, addend, row_factors<as>(a, mean, rstd, projection, total),
                                     dx, partial, a.d);
  }
};

/// A row's sum of squares.
template <class T>
[[gnu::noinline]] acc_t<T> squares_of_row(const T* __restrict x, std::int64_t d) {
  acc_t<T> sum = 0;
  if constexpr (widens<T>)
    for_groups(d, [&](std::int64_t begin, auto n) {
      float values[wide_group];
      widen(x + begin, values, n);
      for (std::int64_t i = 0; i < n; ++i) sum += values[i] * values[i];
    });
  else
    for (std::int64_t i = 0; i < d; ++i) sum += x[i] * x[i];
  return sum;
}

}  // namespace ztrain::kernels
