#pragma once
// 8-bit floats of activations and gradients, scaled as they are met ("dynamic scaling"): value = code *
// scale, where the scale is a power of two; see fp8_scale.hpp. Code is f8e4m3 or f8e5m2. Columns are a
// multiple of 16, and arrays begin on 16 bytes. Results depend on no order of execution.

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// codes[rows, cols] and scale[1] of x[rows, cols]; and transposed[cols, rows], the same codes, where that is
/// not null: rows are a multiple of 16 then. partials: fp8_quantize_workspace_bytes, overwritten. x is read
/// twice: for the scale, and for the codes.
template <class Code>
void fp8_quantize_tensor(Exec& exec, Matrix<const bf16> x, Matrix<Code> codes, std::uint8_t* transposed,
                         float* scale, float* partials);

/// The same where the largest magnitudes of the parts that share the scale, which x is one of, are known.
template <class Code>
void fp8_quantize_tensor_by(Exec& exec, Matrix<const bf16> x, Matrix<Code> codes, std::uint8_t* transposed,
                            float* scale, Vector<const float> found);

/// Of x. partials as above.
void fp8_largest_of_tensor(Exec& exec, Matrix<const bf16> x, float* largest, float* partials);

/// codes[rows, cols] and scales[rows] of x[rows, cols], or of x times columns[cols] where that is not null:
/// columns must be powers of two, so that nothing is rounded twice. found: empty, or the largest magnitudes
/// of each row's parts, [parts, rows], where x is a part of some columns.
template <class Code>
void fp8_quantize_rows(Exec& exec, Matrix<const bf16> x, const float* columns, Matrix<Code> codes,
                       float* scales, Vector<const float> found = {});

/// largest[rows], of x or of x times columns.
void fp8_largest_of_rows(Exec& exec, Matrix<const bf16> x, const float* columns, float* largest);

/// to[cols, rows] = from[rows, cols], of codes of either format. Rows and columns are multiples of 16.
/// ones[cols] are set to 1 where they are not null.
void fp8_transpose(Exec& exec, Matrix<const std::uint8_t> from, std::uint8_t* to, float* ones);

}  // namespace ztrain::kernels
