#pragma once
// Computes the values that a reward model's head gives tokens, and their gradients. Products are summed in
// fp64: losses depend on differences of values, and few tokens have a weight.

#include <cstdint>

#include "kernel_interface/step_scalars.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// Operands of the head: h [R, d] of the tokens from first_token on, weight [d], token_weights [T].
template <class T>
struct RewardInput {
  Matrix<const T> h;
  Vector<const T> weight;
  Vector<const float> token_weights;
  std::int64_t first_token = 0;
};

/// Writes nll [T]: minus each token's weight times the product of its row of h and the weight; 0 for tokens
/// without a row.
template <class T>
void reward_tokens(Exec& exec, const RewardInput<T>& input, Vector<double> nll);

/// Computes dh [R, d] of dnll [T], and dweight [d], which is added to if `accumulates`; dweight.count = 0: it
/// is not wanted. scalars: on the device, of which loss_scale is read.
template <class T, class G>
void reward_tokens_backward(Exec& exec, const RewardInput<T>& input, Vector<const double> dnll,
                            const StepScalars* scalars, Matrix<T> dh, Vector<G> dweight, bool accumulates);

}  // namespace ztrain::kernels
