#pragma once
// The sums of a token's logits that ranks have of their words, joined. Included by kernel sources only.

#include <limits>

#include "kernels/head/head_split.hpp"
#include "kernels/head/loss_terms.hpp"
#include "kernels/launch/fast_exp.hpp"

namespace ztrain::kernels {

inline constexpr double not_chosen = std::numeric_limits<double>::lowest();

/// The sums of all members for one token, in their order.
struct JoinedSums {
  const LogitSums* sums;
  std::int64_t members, tokens;
  LossTerms terms;

  ZTRAIN_FUNCTION LogitSums of(std::int64_t i) const {
    LogitSums all{not_chosen, 0, not_chosen};
    for (std::int64_t m = 0; m < members; ++m) {
      const LogitSums& one = sums[m * tokens + i];
      // A NaN must not be lost in a comparison.
      all.maximum = one.maximum > all.maximum || one.maximum != one.maximum ? one.maximum : all.maximum;
      all.chosen = one.chosen > all.chosen || one.chosen != one.chosen ? one.chosen : all.chosen;
    }
    for (std::int64_t m = 0; m < members; ++m) {
      const LogitSums& one = sums[m * tokens + i];
      all.sum += one.sum * fast_exp(one.maximum - all.maximum);
    }
    if (terms.label_smoothing > 0) {
      all.chosen = 0;
      for (std::int64_t m = 0; m < members; ++m) all.chosen += sums[m * tokens + i].chosen;
    }
    if (all.chosen == not_chosen) all.chosen = std::numeric_limits<double>::quiet_NaN();
    return all;
  }
};

}  // namespace ztrain::kernels
