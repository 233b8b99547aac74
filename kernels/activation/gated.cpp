#include "base/error.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/activation/functions.hpp"
#include "kernels/launch/pieces.hpp"
#include "kernels/launch/wide.hpp"

namespace ztrain::kernels {
namespace {

/// Computes at most a quantum of elements. 16-bit floats are widened all at once: over fewer elements at a
/// time the exponential's long chain of operations is waited for.
template <class F, class T>
KOKKOS_INLINE_FUNCTION void forward_block(const T* __restrict gate, const T* __restrict up, T* __restrict y,
                                          std::int64_t n) {
  if constexpr (widens<T>) {
    float g[quantum], u[quantum], result[quantum];
    widen(gate, g, n);
    widen(up, u, n);
    forward_block<F, float>(g, u, result, n);
    narrow(result, y, n);
  } else {
    for (std::int64_t i = 0; i < n; ++i) {
      y[i] = static_cast<T>(F::value(load(gate[i])) * factor_of_up<F>(load(up[i])).value);
    }
  }
}

/// Computes the gradients of at most a quantum of elements.
/// Outputs may be inputs: each element is read before it is written.
template <class F, class T>
KOKKOS_INLINE_FUNCTION void backward_block(const T* gate, const T* up, const T* dy, T* dgate, T* dup,
                                           std::int64_t n) {
  if constexpr (widens<T>) {
    float g[quantum], u[quantum], gradient[quantum];
    widen(gate, g, n);
    widen(up, u, n);
    widen(dy, gradient, n);
    backward_block<F, float>(g, u, gradient, g, u, n);
    narrow(g, dgate, n);
    narrow(u, dup, n);
    return;
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const acc_t<T> gradient = load(dy[i]);
    const ValueAndSlope<acc_t<T>> f = F::both(load(gate[i])), u = factor_of_up<F>(load(up[i]));
    dgate[i] = static_cast<T>(gradient * u.value * f.slope);
    dup[i] = static_cast<T>(gradient * f.value * u.slope);
  }
}

/// Where all rows follow one another they are walked as one.
struct Extent {
  std::int64_t rows, cols;
};

Extent extent(std::int64_t rows, std::int64_t cols, bool dense) {
  return dense ? Extent{1, rows * cols} : Extent{rows, cols};
}

template <class T>
bool fits(const Columns<T>& x, std::int64_t rows, std::int64_t cols) {
  return x.rows == rows && x.cols == cols && x.row >= cols;
}

template <class F, class T>
void gate_rows(Exec& exec, Columns<const T> gate, Columns<const T> up, Matrix<T> y) {
  const Extent e = extent(y.rows, y.cols, gate.dense() && up.dense());
  for_row_pieces<pack_of<T>>(
      exec, e.rows, e.cols, KOKKOS_LAMBDA(const std::int64_t row, const PieceOf<T> p) {
        forward_block<F, T>(p.in(gate.data + row * gate.row), p.in(up.data + row * up.row),
                            p.out(y.data + row * y.cols), p.n());
      });
}

template <class F, class T>
void gate_rows_backward(Exec& exec, Columns<const T> gate, Columns<const T> up, Matrix<const T> dy,
                        Columns<T> dgate, Columns<T> dup) {
  const Extent e = extent(dy.rows, dy.cols, gate.dense() && up.dense() && dgate.dense() && dup.dense());
  for_row_pieces<pack_of<T>>(
      exec, e.rows, e.cols, KOKKOS_LAMBDA(const std::int64_t row, const PieceOf<T> p) {
        backward_block<F, T>(p.in(gate.data + row * gate.row), p.in(up.data + row * up.row),
                             p.in(dy.data + row * dy.cols), p.out(dgate.data + row * dgate.row),
                             p.out(dup.data + row * dup.row), p.n());
      });
}

}  // namespace

template <class T>
void gated_forward(Exec& exec, ActivationKind kind, Columns<const T> gate, Columns<const T> up, Matrix<T> y) {
  REQUIRE(fits(gate, y.rows, y.cols) && fits(up, y.rows, y.cols),
          "gated activation: gate is [{}, {}], up [{}, {}] and y [{}, {}]", gate.rows, gate.cols, up.rows,
          up.cols, y.rows, y.cols);
  with_function(kind, [&]<class F>() { gate_rows<F, T>(exec, gate, up, y); });
}

template <class T>
void gated_backward(Exec& exec, ActivationKind kind, Columns<const T> gate, Columns<const T> up,
                    Matrix<const T> dy, Columns<T> dgate, Columns<T> dup) {
  REQUIRE(fits(gate, dy.rows, dy.cols) && fits(up, dy.rows, dy.cols) && fits(dgate, dy.rows, dy.cols) &&
              fits(dup, dy.rows, dy.cols),
          "gated activation backward: gate is [{}, {}], up [{}, {}], dy [{}, {}], dgate [{}, {}] and dup "
          "[{}, {}]",
          gate.rows, gate.cols, up.rows, up.cols, dy.rows, dy.cols, dgate.rows, dgate.cols, dup.rows,
          dup.cols);
  with_function(kind, [&]<class F>() { gate_rows_backward<F, T>(exec, gate, up, dy, dgate, dup); });
}

ZTRAIN_INSTANCES(gated_forward)
ZTRAIN_INSTANCES(gated_backward)

}  // namespace ztrain::kernels
