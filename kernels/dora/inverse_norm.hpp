#pragma once
// Included by kernel sources only.

#include <cmath>

#include "kernels/launch/rows.hpp"

namespace ztrain::kernels {

/// 1 / norm of a row, and 0 for a row of zeros.
template <class T>
KOKKOS_INLINE_FUNCTION acc_t<T> inverse_norm(acc_t<T> squares) {
  const acc_t<T> norm = load(static_cast<T>(std::sqrt(squares)));
  return norm > 0 ? acc_t<T>(1) / norm : acc_t<T>(0);
}

}  // namespace ztrain::kernels
