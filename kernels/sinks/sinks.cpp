#include "kernels/sinks/sinks.hpp"

#include <cmath>

#include "base/error.hpp"
#include "kernels/launch/pieces.hpp"
#include "kernels/launch/wide.hpp"

namespace ztrain::kernels {
namespace {

template <class T>
KOKKOS_INLINE_FUNCTION void multiply(T* x, acc_t<T> factor, std::int64_t n) {
  if constexpr (widens<T>)
    for_groups(n, [&](std::int64_t begin, auto count) {
      float values[wide_group];
      widen(x + begin, values, count);
      for (std::int64_t i = 0; i < count; ++i) values[i] *= factor;
      narrow(values, x + begin, count);
    });
  else
    for (std::int64_t i = 0; i < n; ++i) x[i] = static_cast<T>(load(x[i]) * factor);
}

/// Returns log(exp(a) + exp(b)).
template <class A>
KOKKOS_INLINE_FUNCTION A log_of_both(A a, A b) {
  const A most = a > b ? a : b, least = a > b ? b : a;
  return most + std::log1p(std::exp(least - most));
}

}  // namespace

template <class T>
void add_sinks(Exec& exec, Sinks<T> sinks, Matrix<T> o, Matrix<acc_t<T>> lse) {
  using A = acc_t<T>;
  REQUIRE(lse.rows == o.rows && lse.cols > 0 && o.cols % lse.cols == 0 && sinks.first >= 0 &&
              sinks.first + lse.cols <= sinks.all.count,
          "sinks: o is [{}, {}], lse [{}, {}], sinks [{}] from {} on", o.rows, o.cols, lse.rows, lse.cols,
          sinks.all.count, sinks.first);
  const std::int64_t heads = lse.cols, width = o.cols / heads;
  const T* const sink = sinks.all.data + sinks.first;
  for_row_pieces<pack_of<T>>(
      exec, o.rows * heads, width, KOKKOS_LAMBDA(const std::int64_t row, const PieceOf<T> p) {
        const A share = A(1) / (A(1) + std::exp(load(sink[row % heads]) - lse.data[row]));
        multiply<T>(p.both(o.data + row * width), share, p.n());
      });
  for_rows(
      exec, o.rows * heads, KOKKOS_LAMBDA(const std::int64_t row) {
        lse.data[row] = log_of_both<A>(lse.data[row], load(sink[row % heads]));
      });
}

ZTRAIN_INSTANCES(add_sinks)

}  // namespace ztrain::kernels
