#pragma once
// Token embedding: row tokens[t] of W. T in {float, bf16, f16, double}.

#include <cstdint>

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// Which rows of a table W holds: those from `first` on, of `all`; all = 0: W is the table.
struct TableRows {
  std::int64_t first = 0, all = 0;
};

/// tokens: [T]; W: [V, d]; x: [T, d]. A token outside the table gives a row of NaN, which shows in the loss;
/// one of the table's that W does not hold a row of zeros.
template <class T>
void embedding_forward(Exec& exec, Vector<const std::int32_t> tokens, Matrix<const T> W, Matrix<T> x,
                       TableRows rows = {});

/// tokens: [T]; dx: [T, d]; dW: [V, d] of type G, zeroed first unless accumulate is set. Each row of dW is
/// summed in token order, in acc_t<G> and rounded to G at every addition. Tokens that dW does not hold are
/// skipped. (T, G) in {(float, float), (bf16, float), (bf16, bf16), (f16, float), (f16, f16),
/// (double, double)}.
template <class T, class G>
void embedding_backward(Exec& exec, Vector<const std::int32_t> tokens, Matrix<const T> dx, Matrix<G> dW,
                        bool accumulate, TableRows rows = {});

}  // namespace ztrain::kernels
