#include "kernels/rope/rope.hpp"

#include <cmath>

#include "base/error.hpp"
#include "kernels/launch/pieces.hpp"
#include "kernels/launch/wide.hpp"

namespace ztrain::kernels {
namespace {

KOKKOS_INLINE_FUNCTION double frequency(std::int64_t i, std::int64_t hd, double theta,
                                        const RopeScaling& scaling) {
  const double plain = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(hd));
  if (scaling.kind == RopeScaling::Kind::none) return plain;
  const double wavelength = 6.283185307179586476925 / plain;
  const double turns = scaling.original_max_position / wavelength;
  if (turns < scaling.low_freq_factor) return plain / scaling.factor;
  if (turns > scaling.high_freq_factor) return plain;
  const double smooth =
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * plain / scaling.factor + smooth * plain;
}

/// a * b + c, rounded once where the processor does that. A compiler may fuse either product of a sum of two,
/// and does not choose alike in all copies of a loop that it unrolls.
template <class A>
KOKKOS_INLINE_FUNCTION A multiply_add(A a, A b, A c) {
#if defined(__FP_FAST_FMAF) || defined(__CUDA_ARCH__)
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

/// n pairs of one head. (ya, yb) may be (xa, xb): each pair is read before it is written.
template <class T>
KOKKOS_INLINE_FUNCTION void rotate(const T* xa, const T* xb, const acc_t<T>* __restrict cosine,
                                   const acc_t<T>* __restrict sine, acc_t<T> sign, T* ya, T* yb,
                                   std::int64_t n) {
  if constexpr (widens<T>) {
    for_groups(n, [&](std::int64_t begin, auto count) {
      float a[wide_group], b[wide_group];
      widen(xa + begin, a, count);
      widen(xb + begin, b, count);
      rotate<float>(a, b, cosine + begin, sine + begin, sign, a, b, count);
      narrow(a, ya + begin, count);
      narrow(b, yb + begin, count);
    });
    return;
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const acc_t<T> a = load(xa[i]), b = load(xb[i]);
    const acc_t<T> c = cosine[i], s = sign * sine[i];
    ya[i] = static_cast<T>(multiply_add(a, c, -(b * s)));
    yb[i] = static_cast<T>(multiply_add(b, c, a * s));
  }
}

}  // namespace

template <class A>
void rope_table(Exec& exec, Vector<const std::int32_t> positions, double theta, const RopeScaling& scaling,
                Matrix<A> table) {
  REQUIRE(
      table.rows == positions.count && table.cols % 2 == 0,
      "rope: the table is [{}, {}] for {} positions; it must have one row per position and an even number of "
      "columns",
      table.rows, table.cols, positions.count);
  const std::int64_t half = table.cols / 2, rows = table.rows;
  // A block of rows shares each frequency, whose power costs more than its cosines.
  constexpr std::int64_t height = on_gpu ? 8 : 128;
  for_rows(
      exec, ceil_div(rows, height) * half, KOKKOS_LAMBDA(const std::int64_t index) {
        const std::int64_t i = index % half, begin = index / half * height, end = begin + height;
        const double turn = frequency(i, 2 * half, theta, scaling);
        for (std::int64_t row = begin; row < (end < rows ? end : rows); ++row) {
          const double angle = static_cast<double>(positions.data[row]) * turn;
          table.data[row * 2 * half + i] = static_cast<A>(std::cos(angle));
          table.data[row * 2 * half + half + i] = static_cast<A>(std::sin(angle));
        }
      });
}

template <class T>
void rope_apply(Exec& exec, Matrix<const T> x, Matrix<const acc_t<T>> table, bool inverse, Matrix<T> y,
                std::int64_t heads) {
  REQUIRE(y.rows == x.rows && y.cols == x.cols && table.rows == x.rows && table.cols > 0 &&
              x.cols % table.cols == 0 && table.cols % 2 == 0 && heads >= 0 && heads * table.cols <= x.cols,
          "rope: x is [{}, {}], but y is [{}, {}] and the table [{}, {}], for {} heads", x.rows, x.cols,
          y.rows, y.cols, table.rows, table.cols, heads);
  const std::int64_t hd = table.cols, half = hd / 2, width = x.cols, turned = heads > 0 ? heads * hd : width;
  const std::int64_t rest = x.data == y.data ? 0 : width - turned;
  const acc_t<T> sign = inverse ? -1 : 1;
  // A pack of pairs for each lane of a GPU, a head at a time on a CPU.
  const std::int64_t span = on_gpu ? pack : half;
  const int pieces = static_cast<int>(ceil_div(half, span)), items = static_cast<int>(turned / hd) * pieces;
  for_wide_rows(
      exec, x.rows, turned / 2, KOKKOS_LAMBDA(const Lanes& lanes, const std::int64_t row) {
        const acc_t<T>* const angles = table.data + row * hd;
        lanes.items(items, [&](const int item) {
          const std::int64_t head = on_gpu ? item / pieces : item, part = on_gpu ? item % pieces : 0;
          const std::int64_t at = row * width + head * hd, begin = part * span;
          const RowPiece p{begin, span < half - begin ? span : half - begin};
          rotate<T>(p.in(x.data + at), p.in(x.data + at + half), p.in(angles), p.in(angles + half), sign,
                    p.out(y.data + at), p.out(y.data + at + half), p.n());
        });
        lanes.each(rest, [&](const std::int64_t begin, const std::int64_t length) {
          RowPiece{turned + begin, length}.copy(x.data + row * width, y.data + row * width);
          return 0;
        });
      });
}

ZTRAIN_INSTANCE(rope_table, float)
ZTRAIN_INSTANCE(rope_table, double)
ZTRAIN_INSTANCES(rope_apply)

}  // namespace ztrain::kernels
