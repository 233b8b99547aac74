#pragma once
// 1-bit Adam: Tang et al., "1-bit Adam: communication efficient large-scale training with Adam's convergence
// speed" (ICML 2021, arXiv 2102.02888). For freeze_step steps it is AdamW. After these the second moment
// stays as it is, copies of a shard sum up the momentum in signs (program/codes/sign_sums.hpp), and nothing
// is clipped: the norm of what is summed up then is mostly that of what signs round away. An element whose
// second moment is zero has had no gradient in the warm-up, and does not move after it: the sum cannot say
// zero.

#include "optim/adamw.hpp"

namespace ztrain::optim {

struct OneBitAdam {
  static constexpr std::string_view name = "onebit_adam";
  static constexpr std::string_view doc =
      "adamw that sums up its momentum over mesh.replicate in signs after freeze_step (Tang et al., 2021)";
  static constexpr Whole whole = Whole::element;
  static constexpr bool sums_signs = true;
  static std::vector<StateInfo> states(const Settings& settings) { return AdamW::states(settings); }

  template <class A>
  struct Coefficients : AdamW::Coefficients<A> {
    bool frozen;

    ZTRAIN_FUNCTION Coefficients(const StepScalars& s, const Settings& o, const Group& group)
        : AdamW::Coefficients<A>(s, o, group),
          frozen(s.optimizer_step >= static_cast<double>(o.freeze_step)) {
      if (!frozen) return;
      this->multiplier = static_cast<A>(s.unclipped_multiplier());
      this->beta2 = A(1);
      this->rest2 = A(0);
      this->inverse_root2 =
          static_cast<A>(1 / std::sqrt(1 - std::pow(o.beta2, static_cast<double>(o.freeze_step))));
    }
  };

  template <class A>
  ZTRAIN_FUNCTION static A step(A value, A gradient, const Coefficients<A>& c, A& exp_avg, A& exp_avg_sq) {
    const bool moves = !c.frozen || exp_avg_sq != A(0);
    const A move = adam_move<A>(gradient * c.multiplier, c, exp_avg, exp_avg_sq);
    exp_avg = moves ? exp_avg : A(0);
    return std::fma(value, c.keep, moves ? move : A(0));
  }
};

}  // namespace ztrain::optim
