#pragma once
// Attention of bf16 by the processor's own products of bf16 (half_tile.hpp): scores and sums are in fp32, and
// probabilities and the gradients of scores are rounded to bf16 where they are multiplied, as the tensor
// cores of GPUs have it. False, and nothing is done, for other types, and where products of bf16 are formed
// in fp32 (Bf16Products) or this build has no instructions for them. Included by kernel sources only.

#include "kernels/attention/attention_arguments.hpp"
#include "kernels/launch/exec.hpp"
#include "kernels/launch/half_tile.hpp"

namespace ztrain::kernels {

template <class T>
struct BackwardArguments;

#ifdef ZTRAIN_HALF_TILES
bool attention_forward_half(Exec& exec, const AttentionForwardArguments<bf16>& a);
/// a.delta has been formed, and a.dq_sum has all that it begins with.
bool attention_backward_half(Exec& exec, const BackwardArguments<bf16>& a);
#endif

template <class T>
bool attention_forward_half(Exec&, const AttentionForwardArguments<T>&) {
  return false;
}
template <class T>
bool attention_backward_half(Exec&, const BackwardArguments<T>&) {
  return false;
}

}  // namespace ztrain::kernels
