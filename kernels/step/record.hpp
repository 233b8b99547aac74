#pragma once
// What a step reports: the loss, and the norm of the gradients. The structs of kernel_interface are uint8
// [bytes].

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/elementwise/record.hpp"
#include "kernels/record.hpp"

namespace ztrain::program {

/// gradient [S] -> norm ExactSum, workspace: of the pieces, which are what this rank speaks for. of_terms: of
/// all of a term of a sum, of which no more is asked than whether it is finite.
struct SumSquares {
  static constexpr std::string_view op = "sum_squares";
  enum In : std::size_t { gradient };
  enum Out : std::size_t { norm, workspace };
  static constexpr Count reads = 1, writes = 2;
  std::vector<Elements> pieces;
  bool of_terms = false;
  static constexpr auto fields() {
    return std::tuple{Given{"pieces", &SumSquares::pieces}, Unusual{"of_terms", &SumSquares::of_terms}};
  }
};
/// losses fp64 [n, 2]..., norms ExactSum... -> partials StepPartial.
struct StepPartials {
  static constexpr std::string_view op = "step_partials";
  enum Out : std::size_t { partials };
  static constexpr Count reads{0, any_number}, writes = 1;
  std::int64_t losses = 0;   ///< how many inputs are losses
  bool counts_loss = false;  ///< this rank reports the loss for those that computed the same
  /// A loss is of all tokens of its micro-batch: ranks that share these have the same one.
  bool of_micro_batches = false;
  static constexpr auto fields() {
    return std::tuple{Given{"losses", &StepPartials::losses},
                      Given{"counts_loss", &StepPartials::counts_loss},
                      Unusual{"of_micro_batches", &StepPartials::of_micro_batches}};
  }
};
/// partials StepPartial [ranks], scalars, (overflows fp64 [1]) -> scalars. A step with overflows is not taken
/// (rows_left_out of StepScalars).
struct FinishStep : NoConstants {
  static constexpr std::string_view op = "finish_step";
  enum In : std::size_t { partials, scalars, overflows };
  enum Out : std::size_t { finished };
  static constexpr Count reads{2, 3}, writes = 1;
};

}  // namespace ztrain::program
