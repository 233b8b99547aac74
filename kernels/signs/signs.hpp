#pragma once
// Terms of a sum in one bit each, with error feedback: 1-bit Adam (Tang et al., 2021). A quantum of
// code_quantum elements is their signs, a bit each from the lowest of the first byte on (1: not negative),
// and behind them an fp32 scale: the mean magnitude of the quantum's elements. An element is decoded to plus
// or minus the scale.

#include <cstdint>
#include <vector>

#include "base/weight_form.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// Runs of elements, each from a whole quantum on. What lies beside them is neither read nor coded.
struct SignPiece {
  std::int64_t begin = 0, count = 0;
};
using SignPieces = std::vector<SignPiece>;

/// What the terms of a momentum's sum are made of.
struct MomentumTerm {
  double beta1 = 0;
  std::int64_t ranks = 1;  ///< that each add a part of the momentum so far
};

/// Codes u = beta1 / ranks * momentum + (1 - beta1) * unclipped_multiplier * gradient + error, in fp32, and
/// keeps u minus what its codes say in error. codes: whole quanta, of which those of no piece become zeros.
/// With found_inf, or no tokens, error keeps its bits and all codes are zeros. G is float, bf16, f16 or
/// double; M float, bf16 or double. Throws Error if a piece does not begin on a quantum or is beyond the
/// arrays.
template <class G, class M>
void encode_signs(Exec& exec, const MomentumTerm& term, const SignPieces& pieces, Vector<const G> gradient,
                  Vector<const M> momentum, const StepScalars* scalars, Vector<float> error,
                  Vector<std::uint8_t> codes);

/// Adds up what the codes of several ranks say, in rank order in fp32, codes the sum, and adds the sum minus
/// what its codes say to error. terms: as many codes for each rank as `codes` has. begin: the element of
/// error that belongs to the first of codes. Otherwise as encode_signs.
void sum_signs(Exec& exec, std::int64_t begin, const SignPieces& pieces, Vector<const std::uint8_t> terms,
               const StepScalars* scalars, Vector<float> error, Vector<std::uint8_t> codes);

/// gradient = (what the codes say - beta1 momentum) / ((1 - beta1) unclipped_multiplier); zero beside the
/// pieces, and everywhere if there are no tokens; NaN everywhere with found_inf. G is float or double.
template <class G, class M>
void decode_signs(Exec& exec, double beta1, const SignPieces& pieces, Vector<const std::uint8_t> codes,
                  Vector<const M> momentum, const StepScalars* scalars, Vector<G> gradient);

}  // namespace ztrain::kernels
