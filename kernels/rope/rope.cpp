#include "kernels/rope/rope.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.hpp"
#include "kernels/launch/pieces.hpp"
#include "kernels/launch/wide.hpp"

namespace ztrain::kernels {
namespace {

/// Frequencies of one launch.
struct Carried {
  double at[16];
};

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

/// n pairs of neighbours: x and y have 2n elements. y may be x.
template <class T>
KOKKOS_INLINE_FUNCTION void rotate_neighbours(const T* x, const acc_t<T>* __restrict cosine,
                                              const acc_t<T>* __restrict sine, acc_t<T> sign, T* y,
                                              std::int64_t n) {
  if constexpr (widens<T>) {
    for_groups(n, [&](std::int64_t begin, auto count) {
      float pairs[2 * wide_group];
      widen(x + 2 * begin, pairs, count);
      widen(x + 2 * begin + count, pairs + count, count);
      rotate_neighbours<float>(pairs, cosine + begin, sine + begin, sign, pairs, count);
      narrow(pairs, y + 2 * begin, count);
      narrow(pairs + count, y + 2 * begin + count, count);
    });
    return;
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const acc_t<T> a = load(x[2 * i]), b = load(x[2 * i + 1]);
    const acc_t<T> c = cosine[i], s = sign * sine[i];
    y[2 * i] = static_cast<T>(multiply_add(a, c, -(b * s)));
    y[2 * i + 1] = static_cast<T>(multiply_add(b, c, a * s));
  }
}

}  // namespace

template <class A>
void rope_table(Exec& exec, Vector<const std::int32_t> positions, const RopeFrequencies& frequencies,
                Matrix<A> table) {
  REQUIRE(
      table.rows == positions.count && table.cols == 2 * frequencies.count,
      "rope: the table is [{}, {}] for {} positions and {} frequencies; it must have one row per position "
      "and two columns per frequency",
      table.rows, table.cols, positions.count, frequencies.count);
  const std::int64_t half = table.cols / 2, rows = table.rows;
  const double amplitude = frequencies.amplitude;
  // A block of rows shares each frequency, and a launch carries only so many.
  constexpr std::int64_t height = on_gpu ? 8 : 128;
  for (std::int64_t first = 0; first < half; first += std::ssize(Carried{}.at)) {
    Carried some{};
    const std::int64_t count = std::min<std::int64_t>(std::ssize(some.at), half - first);
    std::copy_n(frequencies.at + first, count, some.at);
    for_rows(
        exec, ceil_div(rows, height) * count, KOKKOS_LAMBDA(const std::int64_t index) {
          const std::int64_t i = index % count, begin = index / count * height, end = begin + height;
          for (std::int64_t row = begin; row < (end < rows ? end : rows); ++row) {
            const double angle = static_cast<double>(positions.data[row]) * some.at[i];
            A* const to = table.data + row * 2 * half + first + i;
            to[0] = static_cast<A>(amplitude * std::cos(angle));
            to[half] = static_cast<A>(amplitude * std::sin(angle));
          }
        });
  }
}

template <class T>
void rope_apply(Exec& exec, Matrix<const T> x, Matrix<const acc_t<T>> table, const RopeForm& form,
                Matrix<T> y) {
  const std::int64_t hd = form.head_dim > 0 ? form.head_dim : table.cols, heads = form.heads,
                     from = form.from;
  REQUIRE(y.rows == x.rows && y.cols == x.cols && table.rows == x.rows && table.cols > 0 && from >= 0 &&
              from + table.cols <= hd && x.cols % hd == 0 && table.cols % 2 == 0 && heads >= 0 &&
              heads * hd <= x.cols,
          "rope: x is [{}, {}], but y is [{}, {}] and the table [{}, {}], for {} heads of {} from element {} "
          "on",
          x.rows, x.cols, y.rows, y.cols, table.rows, table.cols, heads, hd, from);
  const std::int64_t half = table.cols / 2, width = x.cols, turned = heads > 0 ? heads * hd : width;
  const bool in_place = x.data == y.data, interleaved = form.interleaved;
  // Elements of a head before the turned ones, and behind these.
  const std::int64_t rest = in_place ? 0 : width - turned, lead = in_place ? 0 : from,
                     tail = in_place ? 0 : hd - from - 2 * half;
  const acc_t<T> sign = form.inverse ? -1 : 1;
  // A pack of pairs for each lane of a GPU, a head at a time on a CPU.
  const std::int64_t span = on_gpu ? pack : half, tail_span = on_gpu ? pack : hd;
  const int pieces = static_cast<int>(ceil_div(half, span)), items = static_cast<int>(turned / hd) * pieces;
  const int leads = static_cast<int>(ceil_div(lead, tail_span)),
            tails = leads + static_cast<int>(ceil_div(tail, tail_span)),
            tail_items = static_cast<int>(turned / hd) * tails;
  for_wide_rows(
      exec, x.rows, turned / 2, KOKKOS_LAMBDA(const Lanes& lanes, const std::int64_t row) {
        const acc_t<T>* const angles = table.data + row * 2 * half;
        lanes.items(items, [&](const int item) {
          const std::int64_t head = on_gpu ? item / pieces : item, part = on_gpu ? item % pieces : 0;
          const std::int64_t at = row * width + head * hd + from, begin = part * span;
          const RowPiece p{begin, span < half - begin ? span : half - begin};
          if (interleaved) {
            const Piece<2 * pack> pairs{2 * begin, 2 * p.length};
            rotate_neighbours<T>(pairs.in(x.data + at), p.in(angles), p.in(angles + half), sign,
                                 pairs.out(y.data + at), p.n());
            return;
          }
          rotate<T>(p.in(x.data + at), p.in(x.data + at + half), p.in(angles), p.in(angles + half), sign,
                    p.out(y.data + at), p.out(y.data + at + half), p.n());
        });
        lanes.items(tail_items, [&](const int item) {
          const bool before = item % tails < leads;
          const std::int64_t first = before ? 0 : from + 2 * half, count = before ? lead : tail;
          const std::int64_t at = row * width + item / tails * hd + first,
                             begin = (item % tails - (before ? 0 : leads)) * tail_span;
          RowPiece{begin, tail_span < count - begin ? tail_span : count - begin}.copy(x.data + at,
                                                                                      y.data + at);
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
