#pragma once
// Adam with decoupled weight decay: Loshchilov and Hutter (ICLR 2019), in the order of torch.optim.AdamW:
//   g = gradient * gradient_multiplier,  lr = learning_rate * lr_scale
//   p *= 1 - lr * weight_decay,  m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
//   p -= lr / bias_correction1 * m / (sqrt(v) / sqrt(bias_correction2) + eps)
// computed in float (double for double parameters) and rounded once per stored value. Element-wise:
// independent of the slice, as long as slices begin on multiples of 256 elements.

#include "base/dtype.hpp"
#include "base/step_scalars.hpp"
#include "base/view.hpp"
#include "kernels/exec.hpp"

namespace ztrain::kernels {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double lr_scale = 1;
};

/// parameter, exp_avg, exp_avg_sq, gradient: [n]. master: [n], the copy that is stepped (parameter is then
/// its rounded copy); with master.data null the parameter itself is stepped. scalars: on the device; when
/// found_inf is set every array keeps its bits. P, M, G each in {float, bf16}, or all double.
template <class P, class M, class G>
void adamw(Exec& exec, Vector<P> parameter, Vector<acc_t<P>> master, Vector<M> exp_avg, Vector<M> exp_avg_sq,
           Vector<const G> gradient, const StepScalars* scalars, const AdamWOptions& options);

}  // namespace ztrain::kernels
