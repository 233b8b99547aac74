#pragma once
// Norms by GPU threads that share a row. A row is read once: each thread holds `packs` packs of it in
// registers; what a row is wider than all threads hold is read again (by the thread that read it before, from
// cache). Included by kernel sources only.

#include <cmath>

#include "kernels/launch/row_packs.hpp"

namespace ztrain::kernels {

/// A norm is one of these functions of a row x.
/// plain: x * rstd * weight. one_plus: x * rstd * (1 + weight). centred: (x - mean) * rstd * weight + bias.
/// scaled: as plain, but rstd is that of a wider row, whose squares have been summed.
enum class NormForm : std::uint8_t { plain, one_plus, centred, scaled };

/// The factor that a weight stands for.
template <NormForm form, class T>
KOKKOS_INLINE_FUNCTION acc_t<T> gain(T weight) {
  if constexpr (form == NormForm::one_plus)
    return acc_t<T>(1) + load(weight);
  else
    return load(weight);
}

/// An element as the norm multiplies it.
template <NormForm form, class T>
KOKKOS_INLINE_FUNCTION acc_t<T> norm_value(T x, [[maybe_unused]] acc_t<T> mean) {
  if constexpr (form == NormForm::centred)
    return load(x) - mean;
  else
    return load(x);
}

/// Rows of d elements each. `whole` below: d is a multiple of a pack, and all rows lie on multiples of 16
/// bytes. With an addend, x + addend is normalised, rounded to T and written to sum, which may be either.
template <class T>
struct NormArrays {
  const T* x;
  const T* addend;
  const T* weight;
  T* sum;
  T* y;
  acc_t<T>* rstd;
  std::int64_t d;
  acc_t<T> eps;
  const T* bias = nullptr;            ///< centred
  acc_t<T>* mean = nullptr;           ///< centred
  const acc_t<T>* squares = nullptr;  ///< scaled: by row, the sum of its squares
  acc_t<T> width = 0;                 ///< scaled: elements of a whole row
};

/// The rstd of a row whose squares have been summed over a wider row.
template <class Arrays>
KOKKOS_INLINE_FUNCTION auto rstd_of_squares(const Arrays& a, std::int64_t row) {
  using A = std::remove_cvref_t<decltype(a.eps)>;
  return A(1) / std::sqrt(a.squares[row] / a.width + a.eps);
}

/// Elements [at, at + 8) of a row of NormArrays, as far as the row has them.
template <bool with_addend, bool whole, class T>
KOKKOS_INLINE_FUNCTION RowPack<T> norm_input(const NormArrays<T>& a, std::int64_t row, std::int64_t at) {
  RowPack<T> x = load_pack<whole>(a.x + row * a.d + at, a.d - at);
  if constexpr (with_addend) {
    const RowPack<T> addend = load_pack<whole>(a.addend + row * a.d + at, a.d - at);
    for (int i = 0; i < pack; ++i) x.at[i] = static_cast<T>(load(x.at[i]) + load(addend.at[i]));
    store_pack<whole>(x, a.sum + row * a.d + at, a.d - at);
  }
  return x;
}

template <class T>
KOKKOS_INLINE_FUNCTION acc_t<T> sum_of(const RowPack<T>& x) {
  acc_t<T> sum = 0;
  for (int i = 0; i < pack; ++i) sum += load(x.at[i]);
  return sum;
}

/// Returns the sum over a pack's first n elements. Fused multiply-adds are explicit: compilers that fuse on
/// their own need not do so alike in two kernels.
template <NormForm form, class T>
KOKKOS_INLINE_FUNCTION acc_t<T> sum_of_squares(const RowPack<T>& x, acc_t<T> mean,
                                               [[maybe_unused]] std::int64_t n) {
  acc_t<T> sum = 0;
  for (int i = 0; i < pack; ++i) {
    const acc_t<T> value = norm_value<form>(x.at[i], mean);
    if (form != NormForm::centred || i < n) sum = std::fma(value, value, sum);
  }
  return sum;
}

template <NormForm form, bool whole, class T>
KOKKOS_INLINE_FUNCTION void norm_output(const NormArrays<T>& a, std::int64_t row, std::int64_t at,
                                        const RowPack<T>& x, acc_t<T> mean, acc_t<T> rstd) {
  const RowPack<T> weight = load_pack<whole>(a.weight + at, a.d - at);
  RowPack<T> y;
  if constexpr (form == NormForm::centred) {
    const RowPack<T> bias = load_pack<whole>(a.bias + at, a.d - at);
    for (int i = 0; i < pack; ++i)
      y.at[i] = static_cast<T>(norm_value<form>(x.at[i], mean) * rstd * gain<form>(weight.at[i]) +
                               load(bias.at[i]));
  } else {
    for (int i = 0; i < pack; ++i) y.at[i] = static_cast<T>(load(x.at[i]) * rstd * gain<form>(weight.at[i]));
  }
  store_pack<whole>(y, a.y + row * a.d + at, a.d - at);
}

template <NormForm form, bool with_addend, bool whole, int packs, class T, class Threads>
KOKKOS_INLINE_FUNCTION void norm_row(const Threads& threads, const NormArrays<T>& a, std::int64_t row) {
  using A = acc_t<T>;
  static_assert(!with_addend || form == NormForm::plain || form == NormForm::one_plus);
  const std::int64_t first = threads.rank() * pack, step = threads.size() * pack;
  RowPack<T> held[packs];
  A sum = 0, mean = 0, rstd = 0;
  unrolled<packs>([&](auto k) {
    if (const std::int64_t at = first + k * step; at < a.d)
      held[k] = norm_input<with_addend, whole>(a, row, at);
  });
  // Calls f(pack, at) for each pack of the row that is this thread's.
  const auto each = [&](const auto& f) {
    unrolled<packs>([&](auto k) {
      if (const std::int64_t at = first + k * step; at < a.d) f(held[k], at);
    });
    for (std::int64_t at = first + packs * step; at < a.d; at += step)
      f(norm_input<with_addend, whole>(a, row, at), at);
  };
  if constexpr (form == NormForm::centred) {
    each([&](const RowPack<T>& x, std::int64_t) { sum += sum_of(x); });
    mean = threads.sum(sum) / static_cast<A>(a.d);
    if (threads.rank() == 0) a.mean[row] = mean;
    sum = 0;
  }
  if constexpr (form == NormForm::scaled) {
    rstd = rstd_of_squares(a, row);
  } else {
    each([&](const RowPack<T>& x, std::int64_t at) { sum += sum_of_squares<form>(x, mean, a.d - at); });
    rstd = A(1) / std::sqrt(threads.sum(sum) / static_cast<A>(a.d) + a.eps);
    if (threads.rank() == 0) a.rstd[row] = rstd;
  }
  unrolled<packs>([&](auto k) {
    if (const std::int64_t at = first + k * step; at < a.d)
      norm_output<form, whole>(a, row, at, held[k], mean, rstd);
  });
  const T* const rest = (with_addend ? a.sum : a.x) + row * a.d;
  for (std::int64_t at = first + packs * step; at < a.d; at += step)
    norm_output<form, whole>(a, row, at, load_pack<whole>(rest + at, a.d - at), mean, rstd);
}

/// The sum of a row's squares, in every thread.
template <bool whole, class T, class Threads>
KOKKOS_INLINE_FUNCTION acc_t<T> row_squares_by(const Threads& threads, const T* row, std::int64_t d) {
  acc_t<T> sum = 0;
  for (std::int64_t at = threads.rank() * pack; at < d; at += threads.size() * pack)
    sum += sum_of_squares<NormForm::plain>(load_pack<whole>(row + at, d - at), acc_t<T>(0), d - at);
  return threads.sum(sum);
}

/// dx may be dy or addend; addend may be null.
template <class T>
struct NormGradientArrays {
  const T* x;
  const T* weight;
  const acc_t<T>* rstd;
  const T* dy;
  const T* addend;
  T* dx;
  std::int64_t rows, d;
  const acc_t<T>* mean = nullptr;     ///< centred
  const acc_t<T>* squares = nullptr;  ///< scaled, as in NormArrays
  acc_t<T>* dsquares = nullptr;       ///< scaled: the gradient of squares
  acc_t<T> eps = 0, width = 0;        ///< scaled
};

/// Factors of a row's gradient. dx = dy * gain * rstd - value * along - shift.
template <class A>
struct RowFactors {
  A mean, rstd, along, shift;
};

/// projection: the sum of dy * gain * value over the row. total: that of dy * gain, which centred asks for.
template <NormForm form, class T>
KOKKOS_INLINE_FUNCTION RowFactors<acc_t<T>> row_factors(const NormGradientArrays<T>& a, acc_t<T> mean,
                                                        acc_t<T> rstd, acc_t<T> projection,
                                                        [[maybe_unused]] acc_t<T> total) {
  using A = acc_t<T>;
  RowFactors<A> factors{mean, rstd, 0, 0};
  if constexpr (form != NormForm::scaled)
    factors.along = projection * rstd * rstd * rstd / static_cast<A>(a.d);
  if constexpr (form == NormForm::centred) factors.shift = total * rstd / static_cast<A>(a.d);
  return factors;
}

/// scaled: the gradient of the sum of a row's squares.
template <class T>
KOKKOS_INLINE_FUNCTION acc_t<T> squares_gradient(const NormGradientArrays<T>& a, acc_t<T> rstd,
                                                 acc_t<T> projection) {
  return acc_t<T>(-0.5) * projection * rstd * rstd * rstd / a.width;
}

template <NormForm form, class T>
KOKKOS_INLINE_FUNCTION acc_t<T> projection_of(const RowPack<T>& x, const RowPack<T>& dy,
                                              const RowPack<T>& weight, acc_t<T> mean) {
  acc_t<T> sum = 0;
  for (int i = 0; i < pack; ++i)
    sum = std::fma(load(dy.at[i]) * gain<form>(weight.at[i]), norm_value<form>(x.at[i], mean), sum);
  return sum;
}

template <NormForm form, class T>
KOKKOS_INLINE_FUNCTION acc_t<T> total_of(const RowPack<T>& dy, const RowPack<T>& weight) {
  acc_t<T> sum = 0;
  for (int i = 0; i < pack; ++i) sum = std::fma(load(dy.at[i]), gain<form>(weight.at[i]), sum);
  return sum;
}

/// Writes dx of one pack and adds what it gives to the gradient of the weight to `sums`.
template <NormForm form, bool whole, class T>
KOKKOS_INLINE_FUNCTION void norm_gradient_output(const NormGradientArrays<T>& a, std::int64_t row,
                                                 std::int64_t at, const RowPack<T>& x, const RowPack<T>& dy,
                                                 const RowPack<T>& weight, const RowFactors<acc_t<T>>& f,
                                                 RowPack<acc_t<T>>& sums) {
  using A = acc_t<T>;
  A result[pack];
  for (int i = 0; i < pack; ++i) {
    const A gradient = load(dy.at[i]), value = norm_value<form>(x.at[i], f.mean);
    if constexpr (form == NormForm::scaled)
      result[i] = gradient * gain<form>(weight.at[i]) * f.rstd;
    else
      result[i] = gradient * gain<form>(weight.at[i]) * f.rstd - value * f.along;
    if constexpr (form == NormForm::centred) result[i] -= f.shift;
    sums.at[i] += gradient * value * f.rstd;
  }
  if (a.addend != nullptr) {
    const RowPack<T> addend = load_pack<whole>(a.addend + row * a.d + at, a.d - at);
    for (int i = 0; i < pack; ++i) result[i] += load(addend.at[i]);
  }
  RowPack<T> dx;
  for (int i = 0; i < pack; ++i) dx.at[i] = static_cast<T>(result[i]);
  store_pack<whole>(dx, a.dx + row * a.d + at, a.d - at);
}

/// A thread holds this of a block of rows: its packs of the weight, and the sums over the rows.
template <int packs, class T>
struct HeldColumns {
  RowPack<T> weight[packs];
  RowPack<acc_t<T>> sums[packs];
};

/// dx of a row, and what it adds to the sums.
template <NormForm form, bool whole, int packs, class T, class Threads>
KOKKOS_INLINE_FUNCTION void norm_gradient_row(const Threads& threads, const NormGradientArrays<T>& a,
                                              std::int64_t row, HeldColumns<packs, T>& held,
                                              acc_t<T>* partial) {
  using A = acc_t<T>;
  const std::int64_t first = threads.rank() * pack, step = threads.size() * pack, d = a.d;
  const T *const row_x = a.x + row * d, *const row_dy = a.dy + row * d;
  RowPack<T> x[packs] = {}, dy[packs] = {};
  unrolled<packs>([&](auto k) {
    if (const std::int64_t at = first + k * step; at < d) {
      x[k] = load_pack<whole>(row_x + at, d - at);
      dy[k] = load_pack<whole>(row_dy + at, d - at);
    }
  });
  A mean = 0, rstd = 0, projection = 0, total = 0;
  if constexpr (form == NormForm::centred) mean = a.mean[row];
  if constexpr (form == NormForm::scaled)
    rstd = rstd_of_squares(a, row);
  else
    rstd = a.rstd[row];
  const auto project = [&](const RowPack<T>& of_x, const RowPack<T>& of_dy, const RowPack<T>& weight) {
    projection += projection_of<form>(of_x, of_dy, weight, mean);
    if constexpr (form == NormForm::centred) total += total_of<form>(of_dy, weight);
  };
  unrolled<packs>([&](auto k) {
    if (first + k * step < d) project(x[k], dy[k], held.weight[k]);
  });
  for (std::int64_t at = first + packs * step; at < d; at += step)
    project(load_pack<whole>(row_x + at, d - at), load_pack<whole>(row_dy + at, d - at),
            load_pack<whole>(a.weight + at, d - at));
  projection = threads.sum(projection);
  if constexpr (form == NormForm::centred) total = threads.sum(total);
  if constexpr (form == NormForm::scaled)
    if (threads.rank() == 0) a.dsquares[row] = squares_gradient(a, rstd, projection);
  const RowFactors<A> factors = row_factors<form>(a, mean, rstd, projection, total);
  unrolled<packs>([&](auto k) {
    if (const std::int64_t at = first + k * step; at < d)
      norm_gradient_output<form, whole>(a, row, at, x[k], dy[k], held.weight[k], factors, held.sums[k]);
  });
  for (std::int64_t at = first + packs * step; at < d; at += step) {
    RowPack<A> more = load_pack<whole>(partial + at, d - at);
    norm_gradient_output<form, whole>(a, row, at, load_pack<whole>(row_x + at, d - at),
                                      load_pack<whole>(row_dy + at, d - at),
                                      load_pack<whole>(a.weight + at, d - at), factors, more);
    store_pack<whole>(more, partial + at, d - at);
  }
}

/// Rows begin, begin + stride ... below end. partial [d]: the sum over these rows of dy * x * rstd, written.
/// Each thread owns its columns.
template <NormForm form, bool whole, int packs, class T, class Threads>
KOKKOS_INLINE_FUNCTION void norm_gradient_rows(const Threads& threads, const NormGradientArrays<T>& a,
                                               std::int64_t begin, std::int64_t end, std::int64_t stride,
                                               acc_t<T>* partial) {
  const std::int64_t first = threads.rank() * pack, step = threads.size() * pack, d = a.d;
  HeldColumns<packs, T> held;
  unrolled<packs>([&](auto k) {
    const std::int64_t at = first + k * step;
    if (at < d) held.weight[k] = load_pack<whole>(a.weight + at, d - at);
    for (int i = 0; i < pack; ++i) held.sums[k].at[i] = 0;
  });
  for (std::int64_t at = first + packs * step; at < d; at += step)
    store_pack<whole>(RowPack<acc_t<T>>{}, partial + at, d - at);
  for (std::int64_t row = begin; row < end; row += stride)
    norm_gradient_row<form, whole>(threads, a, row, held, partial);
  unrolled<packs>([&](auto k) {
    if (const std::int64_t at = first + k * step; at < d)
      store_pack<whole>(held.sums[k], partial + at, d - at);
  });
}

/// dweight[column] = the sum of partials [blocks, d] over blocks, added to what is there if accumulate;
/// scratch: a number per thread.
template <class A, class G, class Threads>
KOKKOS_INLINE_FUNCTION void combine_columns(const Threads& threads, const A* partials, std::int64_t blocks,
                                            std::int64_t d, std::int64_t begin, bool accumulate, G* dweight,
                                            A* scratch) {
  constexpr int columns = 32;
  const int groups = threads.size() / columns;
  const std::int64_t column = begin + threads.rank() % columns;
  A sum = 0;
  if (column < d)
    for (std::int64_t block = threads.rank() / columns; block < blocks; block += groups)
      sum += partials[block * d + column];
  scratch[threads.rank()] = sum;
  threads.sync();
  if (threads.rank() >= columns || column >= d) return;
  for (int group = 1; group < groups; ++group) sum += scratch[group * columns + threads.rank()];
  dweight[column] = static_cast<G>(accumulate ? static_cast<A>(dweight[column]) + sum : sum);
}

}  // namespace ztrain::kernels
