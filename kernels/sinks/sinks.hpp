#pragma once
// Attention sinks: each head has a trained logit, its sink, that joins the softmax of each of its queries as
// one more key would, whose value is 0 (OpenAI, "gpt-oss-120b & gpt-oss-20b model card", 2025; Xiao et al.,
// "Efficient streaming language models with attention sinks", 2024).
//
// Attention without sinks gives o and lse = log(sum_j exp(s_j)). With sinks these are
//   o' = o / (1 + exp(sink - lse)),  lse' = log(exp(lse) + exp(sink)).
// The backward of attention without sinks, given o' and lse', computes the gradients with sinks: it uses
// p_j = exp(s_j - lse') and the row sum of dout * o', in which the sink has no part since its value is 0.
// Hence
//   dsink = -sum_t exp(sink - lse'[t]) (dout[t] . o'[t]).
// T in {float, bf16, f16, double}.

#include <cstdint>

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// The sinks of all heads; the heads at hand are those from `first` on.
template <class T>
struct Sinks {
  Vector<const T> all;
  std::int64_t first = 0;
};

/// Replaces o and lse of attention without sinks by those with sinks. o: [T, heads * head_dim]; lse: [T,
/// heads].
template <class T>
void add_sinks(Exec& exec, Sinks<T> sinks, Matrix<T> o, Matrix<acc_t<T>> lse);

/// Computes dsinks of all heads, 0 for heads that are not at hand, or adds it to dsinks if accumulate is
/// set. o and lse are those with sinks. Sums are formed in fp64, in an order that depends on shapes alone.
/// workspace: sinks_backward_workspace_bytes(T, heads), aligned to 64. (T, G) as of other gradients of
/// parameters.
template <class T, class G>
void sinks_backward(Exec& exec, Sinks<T> sinks, Matrix<const T> o, Matrix<const acc_t<T>> lse,
                    Matrix<const T> dout, Vector<G> dsinks, bool accumulate, void* workspace);

}  // namespace ztrain::kernels
