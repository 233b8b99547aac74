#pragma once
// RMSNorm of rows that are cut over ranks: each has some columns, and the sum of squares is formed over ranks
// between the two halves. y = x * weight / sqrt(squares / width + eps). T in {float, bf16, f16, double}.

#include <cstdint>

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// squares[t] = the sum of x[t, i]^2 over columns i >= first. x: [T, d]; squares: [T].
template <class T>
void row_squares(Exec& exec, Matrix<const T> x, std::int64_t first, Vector<acc_t<T>> squares);

/// dx[t, i] = 2 x[t, i] dsquares[t], and 0 for i < first.
template <class T>
void row_squares_backward(Exec& exec, Matrix<const T> x, std::int64_t first, Vector<const acc_t<T>> dsquares,
                          Matrix<T> dx);

/// A row of the whole matrix: its elements, and what is added to their mean square.
struct WideRow {
  std::int64_t width;
  double eps;
};

/// x, y: [T, d]; weight: [d]; squares: [T], of whole rows. y may not alias x.
template <class T>
void rms_scale_forward(Exec& exec, Matrix<const T> x, Vector<const T> weight, Vector<const acc_t<T>> squares,
                       WideRow row, Matrix<T> y);

/// dx = dy * weight * rstd, dweight as of rmsnorm_backward, dsquares[t] = -rstd^3 / (2 width) * the sum of dy
/// * weight * x over these columns. dx may be dy. workspace: rmsnorm_backward_workspace_bytes(...), aligned
/// to 64.
template <class T, class G>
void rms_scale_backward(Exec& exec, Matrix<const T> x, Vector<const T> weight, Vector<const acc_t<T>> squares,
                        Matrix<const T> dy, WideRow row, Matrix<T> dx, Vector<G> dweight,
                        Vector<acc_t<T>> dsquares, bool accumulate, void* workspace);

}  // namespace ztrain::kernels
