#pragma once
// One optimizer step of a rule of src/optim on flat arrays: gradient scaling, update, rounding. Computed
// in float (double for fp64 parameters) and rounded once per stored value, element by element: independent of
// the slice, as long as slices begin on multiples of 256 elements.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "kernels/launch/exec.hpp"
#include "optim/optimizer.hpp"

namespace ztrain::kernels {

/// One run of one parameter within the arrays. Element begin + i is element e = slice_begin + i of the
/// parameter's tensor-parallel slice, and element (e / run) * stride + offset + e % run of the whole
/// parameter.
struct OptimizerPiece {
  std::int64_t begin = 0;  ///< multiple of 256
  std::int64_t count = 0;
  double lr_scale = 1;
  double weight_decay = 0;
  std::uint64_t stream = 0;  ///< hash of the parameter's name: its stream of random bits
  std::int64_t slice_begin = 0;
  std::int64_t run = 1;
  std::int64_t stride = 1;
  std::int64_t offset = 0;
};

struct OptimizerTypes {
  DType parameter = DType::f32;
  DType master = DType::f32;  ///< of what is stepped: parameter when there is no separate master
  DType gradient = DType::f32;
  DType moments = DType::f32;  ///< of states whose type the rule leaves open
};

/// Flat arrays of the same elements, where the step is taken.
struct OptimizerArrays {
  std::byte* parameter = nullptr;
  std::byte* master = nullptr;  ///< null: the parameter is stepped; else it becomes the master's rounded copy
  const std::byte* gradient = nullptr;
  std::vector<std::byte*>
      states;  ///< in the order of the rule's states; item i covers elements from i * granule
  /// The parameter's old bits are not there: make_host_optimizer_step alone takes that.
  bool parameter_is_new = false;
};

/// stochastic: bf16 parameters that are stepped without a master are rounded up or down with probabilities
/// that make the mean exact (Gupta et al., "Deep learning with limited numerical precision", ICML 2015). The
/// draw is a function of (seed, stream, step, logical index) alone. Any other value is rounded to nearest.
struct Rounding {
  bool stochastic = false;
  std::uint64_t seed = 0;
};

class OptimizerStep {
 public:
  virtual ~OptimizerStep() = default;
  /// scalars: on the device. When found_inf is set, every array keeps its bits.
  virtual void run(Exec& exec, const StepScalars* scalars) = 0;
};

/// Throws Error for an unknown rule, for a number of states that is not the rule's, for a piece that begins
/// elsewhere than on a multiple of 256, and for types that no kernel steps. There are kernels for
///   parameter  master      gradient    moments
///   fp32       -           fp32        fp32 bf16
///   bf16       - fp32      bf16 fp32   fp32 bf16
///   fp64       -           fp64        fp64
std::unique_ptr<OptimizerStep> make_optimizer_step(std::string_view rule, const optim::Settings& settings,
                                                   const OptimizerTypes& types, const OptimizerArrays& arrays,
                                                   std::vector<OptimizerPiece> pieces, Rounding rounding);

}  // namespace ztrain::kernels
