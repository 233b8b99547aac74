#include "kernels/adamw.hpp"

#include <cmath>

#include "base/error.hpp"
#include "kernels/rows.hpp"

namespace ztrain::kernels {
namespace {

/// The step's coefficients, worked out in double, rounded once.
template <class A>
struct Coefficients {
  A multiplier, decay, beta1, rest1, beta2, rest2, inverse_root2, eps, step;

  KOKKOS_INLINE_FUNCTION Coefficients(const StepScalars& s, const AdamWOptions& o) {
    const double lr = s.learning_rate * o.lr_scale;
    multiplier = static_cast<A>(s.gradient_multiplier);
    decay = static_cast<A>(1 - lr * o.weight_decay);
    beta1 = static_cast<A>(o.beta1);
    rest1 = static_cast<A>(1 - o.beta1);
    beta2 = static_cast<A>(o.beta2);
    rest2 = static_cast<A>(1 - o.beta2);
    inverse_root2 = static_cast<A>(1 / std::sqrt(s.bias_correction2));
    eps = static_cast<A>(o.eps);
    step = static_cast<A>(lr / s.bias_correction1);
  }
};

/// Returns the stepped value and updates both moments. The fused multiply-adds are spelled out: a compiler
/// that fuses on its own could choose another operand in a loop's last elements than in its body.
template <class A, class M>
KOKKOS_INLINE_FUNCTION A stepped(A value, A gradient, M& exp_avg, M& exp_avg_sq, const Coefficients<A>& c) {
  const A g = gradient * c.multiplier;
  const A m = std::fma(c.beta1, static_cast<A>(exp_avg), c.rest1 * g);
  const A v = std::fma(c.beta2, static_cast<A>(exp_avg_sq), c.rest2 * (g * g));
  exp_avg = static_cast<M>(m);
  exp_avg_sq = static_cast<M>(v);
  const A denominator = std::fma(std::sqrt(v), c.inverse_root2, c.eps);
  return std::fma(value, c.decay, -(c.step * m / denominator));
}

template <class P, class M, class G>
KOKKOS_INLINE_FUNCTION void step_master(P* __restrict parameter, acc_t<P>* __restrict master,
                                        M* __restrict exp_avg, M* __restrict exp_avg_sq,
                                        const G* __restrict gradient,
                                        const Coefficients<acc_t<P>>& coefficients, std::int64_t n) {
  const Coefficients<acc_t<P>> c = coefficients;
  for (std::int64_t i = 0; i < n; ++i) {
    const acc_t<P> p =
        stepped<acc_t<P>, M>(master[i], static_cast<acc_t<P>>(gradient[i]), exp_avg[i], exp_avg_sq[i], c);
    master[i] = p;
    parameter[i] = static_cast<P>(p);
  }
}

template <class P, class M, class G>
KOKKOS_INLINE_FUNCTION void step_parameter(P* __restrict parameter, M* __restrict exp_avg,
                                           M* __restrict exp_avg_sq, const G* __restrict gradient,
                                           const Coefficients<acc_t<P>>& coefficients, std::int64_t n) {
  const Coefficients<acc_t<P>> c = coefficients;
  for (std::int64_t i = 0; i < n; ++i) {
    parameter[i] = static_cast<P>(stepped<acc_t<P>, M>(load(parameter[i]), static_cast<acc_t<P>>(gradient[i]),
                                                       exp_avg[i], exp_avg_sq[i], c));
  }
}

}  // namespace

template <class P, class M, class G>
void adamw(Exec& exec, Vector<P> parameter, Vector<acc_t<P>> master, Vector<M> exp_avg, Vector<M> exp_avg_sq,
           Vector<const G> gradient, const StepScalars* scalars, const AdamWOptions& options) {
  REQUIRE(exp_avg.count == parameter.count && exp_avg_sq.count == parameter.count &&
              gradient.count == parameter.count && (!master.data || master.count == parameter.count),
          "adamw: {} parameters, but exp_avg has {} elements, exp_avg_sq {}, gradient {}, master {}",
          parameter.count, exp_avg.count, exp_avg_sq.count, gradient.count, master.count);
  for_blocks(
      exec, parameter.count, KOKKOS_LAMBDA(const std::int64_t begin, const std::int64_t n) {
        if (scalars->found_inf != 0) return;  // the old state stays
        const Coefficients<acc_t<P>> c(*scalars, options);
        if (master.data) {
          step_master<P, M, G>(parameter.data + begin, master.data + begin, exp_avg.data + begin,
                               exp_avg_sq.data + begin, gradient.data + begin, c, n);
        } else {
          step_parameter<P, M, G>(parameter.data + begin, exp_avg.data + begin, exp_avg_sq.data + begin,
                                  gradient.data + begin, c, n);
        }
      });
}

#define ZTRAIN_ADAMW(P, M, G)                                                                             \
  template void adamw<P, M, G>(Exec&, Vector<P>, Vector<acc_t<P>>, Vector<M>, Vector<M>, Vector<const G>, \
                               const StepScalars*, const AdamWOptions&);
ZTRAIN_ADAMW(float, float, float)
ZTRAIN_ADAMW(float, float, bf16)
ZTRAIN_ADAMW(float, bf16, float)
ZTRAIN_ADAMW(float, bf16, bf16)
ZTRAIN_ADAMW(bf16, float, float)
ZTRAIN_ADAMW(bf16, float, bf16)
ZTRAIN_ADAMW(bf16, bf16, float)
ZTRAIN_ADAMW(bf16, bf16, bf16)
ZTRAIN_ADAMW(double, double, double)
#undef ZTRAIN_ADAMW

}  // namespace ztrain::kernels
