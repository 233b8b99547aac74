#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/activation/xielu.hpp"
#include "kernels/launch/fast_exp.hpp"
#include "kernels/launch/pieces.hpp"
#include "kernels/launch/threads.hpp"
#include "kernels/launch/wide.hpp"

namespace ztrain::kernels {
namespace {

/// exp(x) - 1 - x for x <= 0.
KOKKOS_INLINE_FUNCTION double beyond_tangent(double x) {
  return std::expm1(x) - x;
}
/// Near 0 its series, since the difference would lose all digits.
KOKKOS_INLINE_FUNCTION float beyond_tangent(float x) {
  float p = 1.0f / 5040;
  p = p * x + 1.0f / 720;
  p = p * x + 1.0f / 120;
  p = p * x + 1.0f / 24;
  p = p * x + 1.0f / 6;
  p = p * x + 0.5f;
  return x > -0.5f ? p * x * x : fast_exp(x) - 1 - x;
}

/// The constants as a row uses them.
template <class A>
struct Xielu {
  A alpha_p, alpha_n, beta, eps;

  template <class T>
  static KOKKOS_INLINE_FUNCTION Xielu of(const XieluConstants<T>& c) {
    return {static_cast<A>(softplus(load(*c.p))), static_cast<A>(c.beta + softplus(load(*c.n))),
            static_cast<A>(c.beta), static_cast<A>(c.eps)};
  }
  /// log(1 + exp(x)), and its slope.
  static KOKKOS_INLINE_FUNCTION double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }
  static KOKKOS_INLINE_FUNCTION double softplus_slope(double x) { return 1 / (1 + std::exp(-x)); }

  /// What alpha_n is multiplied by, where x <= 0.
  KOKKOS_INLINE_FUNCTION A below(A x) const {
    const A m = x < eps ? x : eps;
    return beyond_tangent(m) + (m - x);
  }
  KOKKOS_INLINE_FUNCTION A value(A x) const {
    return (x > 0 ? alpha_p * x * x : alpha_n * below(x)) + beta * x;
  }
  KOKKOS_INLINE_FUNCTION A slope(A x) const {
    const A rise = x < eps ? fast_exp(x) : A(0);
    return (x > 0 ? 2 * alpha_p * x : alpha_n * (rise - 1)) + beta;
  }
};

template <class T>
KOKKOS_INLINE_FUNCTION void xielu_values(const T* __restrict x, T* __restrict y, std::int64_t n,
                                         const Xielu<acc_t<T>>& f) {
  if constexpr (widens<T>) {
    for_groups(n, [&](std::int64_t begin, auto count) {
      float a[wide_group], b[wide_group];
      widen(x + begin, a, count);
      xielu_values<float>(a, b, count, f);
      narrow(b, y + begin, count);
    });
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(f.value(load(x[i])));
  }
}

/// Sums of dy over what alpha_p and alpha_n are multiplied by.
template <class A>
struct AlphaSums {
  A p = 0, n = 0;
};

/// dx may be x or dy: each element is read before it is written.
template <class T>
KOKKOS_INLINE_FUNCTION AlphaSums<acc_t<T>> xielu_slopes(const T* x, const T* dy, T* dx, std::int64_t n,
                                                        const Xielu<acc_t<T>>& f) {
  AlphaSums<acc_t<T>> sums;
  if constexpr (widens<T>) {
    for_groups(n, [&](std::int64_t begin, auto count) {
      float a[wide_group], b[wide_group];
      widen(x + begin, a, count);
      widen(dy + begin, b, count);
      const AlphaSums<float> part = xielu_slopes<float>(a, b, a, count, f);
      narrow(a, dx + begin, count);
      sums.p += part.p;
      sums.n += part.n;
    });
  } else {
    acc_t<T> p = 0, below = 0;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      const acc_t<T> at = load(x[i]), gradient = load(dy[i]);
      p += at > 0 ? gradient * at * at : acc_t<T>(0);
      below += at > 0 ? acc_t<T>(0) : gradient * f.below(at);
      dx[i] = static_cast<T>(gradient * f.slope(at));
    }
    sums = {p, below};
  }
  return sums;
}

/// A row's gradients, by one thread of a CPU in blocks of a quantum, or by a team of a GPU in packs.
template <class T>
struct BackwardRow {
  XieluConstants<T> constants;
  const T *x, *dy;
  T* dx;
  std::int64_t width;
  double* sums;  ///< [rows, 2]

  void operator()(std::int64_t row) const {
    const auto f = Xielu<acc_t<T>>::of(constants);
    double p = 0, n = 0;
    for (std::int64_t begin = 0; begin < width; begin += quantum) {
      const std::int64_t at = row * width + begin;
      const auto part =
          xielu_slopes<T>(x + at, dy + at, dx + at, width - begin < quantum ? width - begin : quantum, f);
      p += part.p;
      n += part.n;
    }
    sums[2 * row] = p;
    sums[2 * row + 1] = n;
  }

  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t row) const {
    const auto f = Xielu<acc_t<T>>::of(constants);
    double p = 0, n = 0;
    for (std::int64_t i = threads.rank(); i < width; i += threads.size()) {
      const std::int64_t at = row * width + i;
      const auto part = xielu_slopes<T>(x + at, dy + at, dx + at, 1, f);
      p += part.p;
      n += part.n;
    }
    p = threads.sum(p);
    n = threads.sum(n);
    if (threads.rank() > 0) return;
    sums[2 * row] = p;
    sums[2 * row + 1] = n;
  }
};

/// The rows' sums, added in order on a CPU and by the threads of one team on a GPU.
template <class T, class G>
struct AddRows {
  XieluConstants<T> constants;
  const double* sums;
  std::int64_t rows;
  bool accumulate;
  G *dp, *dn;

  KOKKOS_INLINE_FUNCTION void write(double p, double n) const {
    using A = Xielu<acc_t<T>>;
    p *= A::softplus_slope(load(*constants.p));
    n *= A::softplus_slope(load(*constants.n));
    *dp = static_cast<G>(static_cast<acc_t<G>>((accumulate ? static_cast<double>(load(*dp)) : 0) + p));
    *dn = static_cast<G>(static_cast<acc_t<G>>((accumulate ? static_cast<double>(load(*dn)) : 0) + n));
  }
  void operator()(std::int64_t) const {
    double p = 0, n = 0;
    for (std::int64_t row = 0; row < rows; ++row) p += sums[2 * row], n += sums[2 * row + 1];
    write(p, n);
  }
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t) const {
    double p = 0, n = 0;
    for (std::int64_t row = threads.rank(); row < rows; row += threads.size())
      p += sums[2 * row], n += sums[2 * row + 1];
    p = threads.sum(p);
    n = threads.sum(n);
    if (threads.rank() == 0) write(p, n);
  }
};

}  // namespace

template <class T>
void xielu_forward(Exec& exec, const XieluConstants<T>& constants, Matrix<const T> x, Matrix<T> y) {
  REQUIRE(x.rows == y.rows && x.cols == y.cols, "xielu: x is [{}, {}] and y [{}, {}]", x.rows, x.cols, y.rows,
          y.cols);
  for_pieces<pack_of<T>>(
      exec, x.rows * x.cols, KOKKOS_LAMBDA(const PieceOf<T> p) {
        xielu_values<T>(p.in(x.data), p.out(y.data), p.n(), Xielu<acc_t<T>>::of(constants));
      });
}

template <class T, class G>
void xielu_backward(Exec& exec, const XieluConstants<T>& constants, Matrix<const T> x, Matrix<const T> dy,
                    Matrix<T> dx, G* dp, G* dn, bool accumulate, void* workspace) {
  REQUIRE(x.rows == dx.rows && x.cols == dx.cols && dy.rows == dx.rows && dy.cols == dx.cols,
          "xielu backward: x is [{}, {}], dy [{}, {}] and dx [{}, {}]", x.rows, x.cols, dy.rows, dy.cols,
          dx.rows, dx.cols);
  auto* const sums = static_cast<double*>(workspace);
  for_shared_rows(exec, x.rows, 256, BackwardRow<T>{constants, x.data, dy.data, dx.data, x.cols, sums});
  for_shared_rows(exec, 1, 256, AddRows<T, G>{constants, sums, x.rows, accumulate, dp, dn});
}

ZTRAIN_INSTANCES(xielu_forward)
ZTRAIN_GRADIENT_INSTANCES(xielu_backward)

}  // namespace ztrain::kernels
