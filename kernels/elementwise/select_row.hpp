#pragma once
// One row of a matrix, chosen by an index that lives on the device.

#include <cstdint>

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// x: [T, d]; index: [1]; y: [1, d] = row index[0] of x. An index outside [0, T) gives a row of NaN.
/// T in {float, bf16, f16, double}.
template <class T>
void select_row(Exec& exec, Matrix<const T> x, Vector<const std::int32_t> index, Matrix<T> y);

}  // namespace ztrain::kernels
