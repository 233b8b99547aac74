#pragma once
// Ops that report a step of a mixture of experts: its losses, and how its tokens are spread over the experts.

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
/// losses fp64 [M, 2] of balance_loss, if the rank has them; counts fp64 [L, E] of all ranks, if it has
/// layers with experts -> partials ExpertsPartial (uint8 [bytes]), workspace.
struct ExpertsPartials {
  static constexpr std::string_view op = "experts_partials";
  enum Out : std::size_t { partials, workspace };
  static constexpr Count reads{0, 2}, writes{1, 2};
  std::int64_t losses = 0;   ///< how many inputs are losses
  bool counts_loss = false;  ///< this rank reports the losses for those that have the same
  bool counts_load = false;  ///< this rank reports the idle experts for those that have the same
  static constexpr auto fields() {
    return std::tuple{Given{"losses", &ExpertsPartials::losses},
                      Given{"counts_loss", &ExpertsPartials::counts_loss},
                      Given{"counts_load", &ExpertsPartials::counts_load}};
  }
};

}  // namespace ztrain::program
