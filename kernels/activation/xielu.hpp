#pragma once
// xIELU: Huang and Schlag, "Deriving activation functions using integration" (2024). With alpha_p =
// softplus(p) and alpha_n = beta + softplus(n), both trained:
//   y = alpha_p x^2 + beta x                              for x > 0,
//   y = alpha_n (exp(m) - 1 - x) + beta x, m = min(x, eps)  else.
// Computed in acc_t<T> and rounded once. T in {float, bf16, f16, double}.

#include <cstddef>

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// p, n: one element each, on the device.
template <class T>
struct XieluConstants {
  const T *p, *n;
  double beta, eps;
};

/// x, y: [T, n]; y aliases no other.
template <class T>
void xielu_forward(Exec& exec, const XieluConstants<T>& constants, Matrix<const T> x, Matrix<T> y);

/// dx = dy * dy/dx, all [T, n]; dx may be either input. dp and dn [1] are the gradients of p and n: sums in
/// fp64 over rows, in an order that depends on shapes alone; added to what is there if accumulate is set.
/// workspace: xielu_backward_workspace_bytes(T), aligned to 64. (T, G) as of other gradients of parameters.
template <class T, class G>
void xielu_backward(Exec& exec, const XieluConstants<T>& constants, Matrix<const T> x, Matrix<const T> dy,
                    Matrix<T> dx, G* dp, G* dn, bool accumulate, void* workspace);

}  // namespace ztrain::kernels
