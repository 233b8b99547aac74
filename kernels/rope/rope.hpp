#pragma once
// Rotary position embedding: Su et al., "RoFormer" (2021), in the rotate_half convention of Hugging Face:
// element i of a head is paired with element i + width/2, or element 2i with 2i + 1 where interleaved. T in
// {float, bf16, f16, double}.

#include <cstdint>

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"
#include "kernels/rope/frequencies.hpp"

namespace ztrain::kernels {

/// The constants of the record Rope.
struct RopeForm {
  bool inverse = false;
  std::int64_t heads = 0, head_dim = 0;
  std::int64_t from = 0;  ///< first element of each head that is turned
  bool interleaved = false;
};

/// table: [T, width]; row t holds the cosines (first half) and sines (second half) of positions[t] *
/// frequency_i. positions: [T]. Angles are computed in double. A in {float, double} (acc_t of the
/// activations).
template <class A>
void rope_table(Exec& exec, Vector<const std::int32_t> positions, const RopeFrequencies& frequencies,
                Matrix<A> table);

/// x, y: [T, n]; table: [T, width], n a multiple of head_dim. Rotates each of the first `heads`
/// heads (0: all) by its angles, or back where it says inverse (which is the backward of the forward
/// rotation: dx = apply(dy, inverse)); all else is copied. y may be x.
template <class T>
void rope_apply(Exec& exec, Matrix<const T> x, Matrix<const acc_t<T>> table, const RopeForm& form,
                Matrix<T> y);

}  // namespace ztrain::kernels
