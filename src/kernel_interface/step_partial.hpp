#pragma once
// What one rank contributes to the scalars of a step. Ranks exchange it as bytes.

#include <type_traits>

#include "kernel_interface/exact_sum.hpp"

namespace ztrain {

struct StepPartial {
  double loss_sum = 0;    ///< sum of loss weight * negative log-likelihood
  double weight_sum = 0;  ///< sum of loss weights
  ExactSum squares;       ///< of the summed gradient's elements that this rank speaks for; carried
};
static_assert(std::is_trivially_copyable_v<StepPartial>);

}  // namespace ztrain
