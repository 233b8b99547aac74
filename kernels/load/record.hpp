#pragma once
// Ops that report the losses of a mixture of experts in a step, and how many tokens each expert gets. One
// more op moves biases, so that later steps spread their tokens more evenly.

#include <cstdint>
#include <string_view>

#include "kernels/record.hpp"

namespace ztrain::program {

/// sums [M, 2 E + 3] of each of L layers, which router_sums gives for M micro-batches -> counts fp64 [L, E]:
/// tokens that chose each expert in the step.
struct ExpertCounts : NoConstants {
  static constexpr std::string_view op = "expert_counts";
  enum Out : std::size_t { counts };
  static constexpr Count reads{1, any_number}, writes = 1;
};
/// losses fp64 [M, 2] of each balance_loss that the rank has; counts fp64 [L, E] of all ranks, if it has
/// layers with experts -> partials ExpertsPartial (uint8 [bytes]), workspace.
struct ExpertsPartials {
  static constexpr std::string_view op = "experts_partials";
  enum Out : std::size_t { partials, workspace };
  static constexpr Count reads{0, any_number}, writes{1, 2};
  std::int64_t losses = 0;   ///< how many inputs are losses
  bool counts_loss = false;  ///< this rank reports the losses for all ranks with the same losses
  bool counts_load = false;  ///< this rank reports idle experts for all ranks with the same layers
  static constexpr auto fields() {
    return std::tuple{Given{"losses", &ExpertsPartials::losses},
                      Given{"counts_loss", &ExpertsPartials::counts_loss},
                      Given{"counts_load", &ExpertsPartials::counts_load}};
  }
};
/// counts fp64 [L, E] of all ranks, scalars, biases [n] (fp32 or fp64) -> biases. The biases
/// of layer l begin at l x stride. The bias of an expert whose count is below the mean of its layer grows by
/// `speed`, and the bias of one above the mean shrinks by as much.
/// Nothing changes in a step that is skipped.
struct MoveBiases {
  static constexpr std::string_view op = "move_biases";
  enum In : std::size_t { counts, scalars, biases };
  enum Out : std::size_t { moved };
  static constexpr Count reads = 3, writes = 1;
  double speed = 0;
  std::int64_t stride = 0;
  static constexpr auto fields() {
    return std::tuple{Given{"speed", &MoveBiases::speed}, Given{"stride", &MoveBiases::stride}};
  }
};

}  // namespace ztrain::program
