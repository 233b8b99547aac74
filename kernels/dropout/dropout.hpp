#pragma once
// Dropout (Srivastava et al., 2014) whose mask is a function of what an element means, not of where it is
// computed: the same on any mesh, and again in backward and recompute.

#include <cstdint>

#include "kernel_interface/step_scalars.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

struct DropoutMask {
  double rate = 0;               ///< share of elements that are dropped, 0 <= rate < 1
  std::uint64_t key = 0;         ///< of the run and the place in the model
  std::int64_t first_token = 0;  ///< number of the first row among the tokens of the step, over all ranks
  /// x is the columns from first_column on of so many; 0: it is all of them.
  std::int64_t first_column = 0, columns = 0;
};

/// y [tokens, width] = x / (1 - rate) where element (first_token + row, first_column + column) is kept, else
/// 0; y may be x. Kept is what has bits >= rate * 2^32 in philox(key, scalars->optimizer_step, i / 4)[i % 4],
/// where i = (first_token + row) * columns + first_column + column. T is float, bf16, f16 or double.
template <class T>
void dropout(Exec& exec, Matrix<const T> x, const DropoutMask& mask, const StepScalars* scalars, Matrix<T> y);

}  // namespace ztrain::kernels
