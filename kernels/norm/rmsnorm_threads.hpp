#pragma once
// rmsnorm by GPU threads that share a row. A row is read once: each thread holds `packs` packs of it in
// registers; what a row is wider than all threads hold is read again (by the thread that read it before, from
// cache). Included by kernel sources only.

#include <cmath>

#include "kernels/launch/row_packs.hpp"

namespace ztrain::kernels {

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
};

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

/// The fused multiply-adds are spelled out: compilers that fuse on their own need not do so alike in two
/// kernels.
template <class T>
KOKKOS_INLINE_FUNCTION acc_t<T> sum_of_squares(const RowPack<T>& x) {
  acc_t<T> sum = 0;
  for (int i = 0; i < pack; ++i) sum = std::fma(load(x.at[i]), load(x.at[i]), sum);
  return sum;
}

template <bool whole, class T>
KOKKOS_INLINE_FUNCTION void norm_output(const NormArrays<T>& a, std::int64_t row, std::int64_t at,
                                        const RowPack<T>& x, acc_t<T> rstd) {
  const RowPack<T> weight = load_pack<whole>(a.weight + at, a.d - at);
  RowPack<T> y;
  for (int i = 0; i < pack; ++i) y.at[i] = static_cast<T>(load(x.at[i]) * rstd * load(weight.at[i]));
  store_pack<whole>(y, a.y + row * a.d + at, a.d - at);
}

template <bool with_addend, bool whole, int packs, class T, class Threads>
KOKKOS_INLINE_FUNCTION void norm_row(const Threads& threads, const NormArrays<T>& a, std::int64_t row) {
  using A = acc_t<T>;
  const std::int64_t first = threads.rank() * pack, step = threads.size() * pack;
  RowPack<T> held[packs];
  A sum = 0;
  unrolled<packs>([&](auto k) {
    if (const std::int64_t at = first + k * step; at < a.d)
      held[k] = norm_input<with_addend, whole>(a, row, at);
  });
  unrolled<packs>([&](auto k) {
    if (first + k * step < a.d) sum += sum_of_squares(held[k]);
  });
  for (std::int64_t at = first + packs * step; at < a.d; at += step)
    sum += sum_of_squares(norm_input<with_addend, whole>(a, row, at));
  const A rstd = A(1) / std::sqrt(threads.sum(sum) / static_cast<A>(a.d) + a.eps);
  if (threads.rank() == 0) a.rstd[row] = rstd;
  unrolled<packs>([&](auto k) {
    if (const std::int64_t at = first + k * step; at < a.d) norm_output<whole>(a, row, at, held[k], rstd);
  });
  const T* const rest = (with_addend ? a.sum : a.x) + row * a.d;
  for (std::int64_t at = first + packs * step; at < a.d; at += step)
    norm_output<whole>(a, row, at, load_pack<whole>(rest + at, a.d - at), rstd);
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
};

template <class T>
KOKKOS_INLINE_FUNCTION acc_t<T> projection_of(const RowPack<T>& x, const RowPack<T>& dy,
                                              const RowPack<T>& weight) {
  acc_t<T> sum = 0;
  for (int i = 0; i < pack; ++i) sum = std::fma(load(dy.at[i]) * load(weight.at[i]), load(x.at[i]), sum);
  return sum;
}

/// Writes dx of one pack and adds what it gives to the weight's gradient to `sums`.
template <bool whole, class T>
KOKKOS_INLINE_FUNCTION void norm_gradient_output(const NormGradientArrays<T>& a, std::int64_t row,
                                                 std::int64_t at, const RowPack<T>& x, const RowPack<T>& dy,
                                                 const RowPack<T>& weight, acc_t<T> rstd, acc_t<T> along,
                                                 RowPack<acc_t<T>>& sums) {
  using A = acc_t<T>;
  A result[pack];
  for (int i = 0; i < pack; ++i) {
    const A gradient = load(dy.at[i]), value = load(x.at[i]);
    result[i] = gradient * load(weight.at[i]) * rstd - value * along;
    sums.at[i] += gradient * value * rstd;
  }
  if (a.addend != nullptr) {
    const RowPack<T> addend = load_pack<whole>(a.addend + row * a.d + at, a.d - at);
    for (int i = 0; i < pack; ++i) result[i] += load(addend.at[i]);
  }
  RowPack<T> dx;
  for (int i = 0; i < pack; ++i) dx.at[i] = static_cast<T>(result[i]);
  store_pack<whole>(dx, a.dx + row * a.d + at, a.d - at);
}

/// Rows begin, begin + stride ... below end. partial [d]: the sum over these rows of dy * x * rstd, written.
/// Each thread owns its columns.
template <bool whole, int packs, class T, class Threads>
KOKKOS_INLINE_FUNCTION void norm_gradient_rows(const Threads& threads, const NormGradientArrays<T>& a,
                                               std::int64_t begin, std::int64_t end, std::int64_t stride,
                                               acc_t<T>* partial) {
  using A = acc_t<T>;
  const std::int64_t first = threads.rank() * pack, step = threads.size() * pack, d = a.d;
  RowPack<T> weight[packs];
  RowPack<A> sums[packs];
  unrolled<packs>([&](auto k) {
    const std::int64_t at = first + k * step;
    if (at < d) weight[k] = load_pack<whole>(a.weight + at, d - at);
    for (int i = 0; i < pack; ++i) sums[k].at[i] = 0;
  });
  for (std::int64_t at = first + packs * step; at < d; at += step)
    store_pack<whole>(RowPack<A>{}, partial + at, d - at);
  for (std::int64_t row = begin; row < end; row += stride) {
    const T *const row_x = a.x + row * d, *const row_dy = a.dy + row * d;
    RowPack<T> x[packs] = {}, dy[packs] = {};
    unrolled<packs>([&](auto k) {
      if (const std::int64_t at = first + k * step; at < d) {
        x[k] = load_pack<whole>(row_x + at, d - at);
        dy[k] = load_pack<whole>(row_dy + at, d - at);
      }
    });
    const A rstd = a.rstd[row];
    A projection = 0;
    unrolled<packs>([&](auto k) {
      if (first + k * step < d) projection += projection_of(x[k], dy[k], weight[k]);
    });
    for (std::int64_t at = first + packs * step; at < d; at += step)
      projection += projection_of(load_pack<whole>(row_x + at, d - at), load_pack<whole>(row_dy + at, d - at),
                                  load_pack<whole>(a.weight + at, d - at));
    const A along = threads.sum(projection) * rstd * rstd * rstd / static_cast<A>(d);
    unrolled<packs>([&](auto k) {
      if (const std::int64_t at = first + k * step; at < d)
        norm_gradient_output<whole>(a, row, at, x[k], dy[k], weight[k], rstd, along, sums[k]);
    });
    for (std::int64_t at = first + packs * step; at < d; at += step) {
      RowPack<A> more = load_pack<whole>(partial + at, d - at);
      norm_gradient_output<whole>(a, row, at, load_pack<whole>(row_x + at, d - at),
                                  load_pack<whole>(row_dy + at, d - at),
                                  load_pack<whole>(a.weight + at, d - at), rstd, along, more);
      store_pack<whole>(more, partial + at, d - at);
    }
  }
  unrolled<packs>([&](auto k) {
    if (const std::int64_t at = first + k * step; at < d) store_pack<whole>(sums[k], partial + at, d - at);
  });
}

/// dweight[column] = the sum of partials [blocks, d] over blocks, added to what is there if accumulate, X a
/// fixed distance apart; scratch: a number per thread.
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
