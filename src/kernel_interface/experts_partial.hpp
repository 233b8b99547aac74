#pragma once
// Numbers that a step of a mixture of experts reports besides its loss.

#include <type_traits>

namespace ztrain {

/// One rank's contribution to the report of a step on its experts. Ranks exchange it as bytes.
struct ExpertsPartial {
  /// Sums over micro-batches of what the balance loss and the z-loss add to the sum of weighted losses.
  double balance_sum = 0, z_sum = 0;
  /// Tokens of the expert that has most, over the mean of its layer's experts, in the layer where that is
  /// largest; 0: none of the rank's layers has experts.
  double load_max = 0;
  double idle = 0;  ///< experts without a token, over the rank's layers; 0 where another rank reports them
};
static_assert(std::is_trivially_copyable_v<ExpertsPartial>);

}  // namespace ztrain
