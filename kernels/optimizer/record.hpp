#pragma once
// The optimizer's step of a rank's part of a parameter.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/record.hpp"

namespace ztrain::program {

/// The part of a parameter that a rank steps: kernels/optimizer/optimizer_step.hpp.
struct SteppedPiece {
  std::int64_t begin = 0, count = 0;
  std::int64_t group = 0;   ///< of lr_scales and weight_decays
  std::int64_t stream = 0;  ///< bits of a hash
  std::int64_t slice_begin = 0, run = 1, stride = 1, offset = 0;
  bool operator==(const SteppedPiece&) const = default;
};
/// gradient, scalars, then the outputs again, but for a parameter that is written whole -> parameter,
/// (master), states in the order of the rule's states().
///
/// A step ahead of the norm is two ops. The first takes the step as if no gradient were clipped, and has more
/// outputs: copies of what was stepped and of the states, as they were. The second has the norm, and those
/// copies as its last inputs. If the first has taken another step than the norm asks for, the second restores
/// the copies and takes the step that it asks for, if any.
struct OptimizerStep {
  static constexpr std::string_view op = "optimizer_step";
  enum In : std::size_t { gradient, scalars };
  enum Out : std::size_t { parameter };
  static constexpr Count reads{3, any_number}, writes{1, any_number};
  static constexpr std::string_view takes = "takes", settles = "settles";  ///< values of `ahead`
  std::string rule;                                                        ///< row of the optimizer table
  bool master = false;
  double beta1 = 0, beta2 = 0, eps = 0, momentum = 0;
  bool nesterov = false;
  bool stochastic = false;  ///< rounding of parameters that have no master
  /// The pieces of a parameter that has a master are written whatever they were: also where no step is taken.
  bool whole = false;
  std::string ahead;  ///< "", or of a step ahead of the norm: which of the two ops it is, takes or settles
  std::int64_t freeze_step = 0;
  std::int64_t seed = 0;
  std::vector<SteppedPiece> pieces;
  std::vector<double> lr_scales, weight_decays;  ///< by group
  static constexpr auto fields() {
    using S = OptimizerStep;
    return std::tuple{Given{"rule", &S::rule},
                      Given{"master", &S::master},
                      Given{"beta1", &S::beta1},
                      Given{"beta2", &S::beta2},
                      Given{"eps", &S::eps},
                      Given{"momentum", &S::momentum},
                      Given{"nesterov", &S::nesterov},
                      Given{"stochastic", &S::stochastic},
                      Unusual{"whole", &S::whole},
                      Unusual{"ahead", &S::ahead},
                      Unusual{"freeze_step", &S::freeze_step},
                      Given{"seed", &S::seed},
                      Given{"pieces", &S::pieces},
                      Given{"lr_scales", &S::lr_scales},
                      Given{"weight_decays", &S::weight_decays}};
  }
};

}  // namespace ztrain::program
