#pragma once
// Activations of feed-forwards, element by element. Gated: y = f(gate) * up (Shazeer, "GLU variants improve
// transformer", 2020), or f(gate) * h(up) where the kind says h. Plain: y = f(x). Computed in acc_t<T> and
// rounded once. T in {float, bf16, f16, double}.

#include <cstdint>
#include <string_view>

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

enum class ActivationKind : std::uint8_t {
  silu,  ///< x / (1 + exp(-x))
  /// m sigmoid(1.702 m), m = min(x, 7); gated it is multiplied by 1 + up, of which up is limited to +-7
  /// (OpenAI, "gpt-oss-120b & gpt-oss-20b model card", 2025).
  clamped_silu,
  gelu_tanh  ///< x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))); Hendrycks and Gimpel, 2016
};

/// Returns the activation of this name. Throws Error if there is none.
ActivationKind activation_kind(std::string_view name);

/// gate, up, y: [T, n]; y aliases neither.
template <class T>
void gated_forward(Exec& exec, ActivationKind kind, Columns<const T> gate, Columns<const T> up, Matrix<T> y);

/// dgate = dy * h(up) * f'(gate), dup = dy * f(gate) * h'(up); all [T, n]. Either output may be any of the
/// inputs, but not the other output.
template <class T>
void gated_backward(Exec& exec, ActivationKind kind, Columns<const T> gate, Columns<const T> up,
                    Matrix<const T> dy, Columns<T> dgate, Columns<T> dup);

/// x, y: of one size; y aliases no other.
template <class T>
void activation_forward(Exec& exec, ActivationKind kind, Vector<const T> x, Vector<T> y);

/// dx = dy * f'(x); dx may be either input.
template <class T>
void activation_backward(Exec& exec, ActivationKind kind, Vector<const T> x, Vector<const T> dy,
                         Vector<T> dx);

}  // namespace ztrain::kernels
