#pragma once
// Rotary position embedding: Su et al., "RoFormer" (2021), in the rotate_half convention of Hugging Face:
// element i of a head is paired with element i + hd/2. T in {float, bf16, f16, double}.

#include <cstdint>

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// How the frequencies theta^(-2i/hd) are stretched for contexts longer than the model was first trained on.
struct RopeScaling {
  enum class Kind { none, llama3 };
  Kind kind = Kind::none;
  /// Llama 3.1: wavelengths above original_max_position / low_freq_factor are divided by factor, those below
  /// original_max_position / high_freq_factor are kept, and those between are interpolated.
  double factor = 8;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_max_position = 8192;
};

/// table: [T, hd], hd even; row t holds cos (first half) and sin (second half) of positions[t] * frequency_i.
/// positions: [T]. Frequencies and angles are computed in double. A in {float, double} (acc_t of the
/// activations).
template <class A>
void rope_table(Exec& exec, Vector<const std::int32_t> positions, double theta, const RopeScaling& scaling,
                Matrix<A> table);

/// x, y: [T, n]; table: [T, hd], n a multiple of hd. Rotates each of the first `heads` heads (0: all) by its
/// angles, or back when inverse is set (which is the backward of the forward rotation: dx = apply(dy,
/// inverse)); what is behind them is copied. y may be x.
template <class T>
void rope_apply(Exec& exec, Matrix<const T> x, Matrix<const acc_t<T>> table, bool inverse, Matrix<T> y,
                std::int64_t heads = 0);

}  // namespace ztrain::kernels
