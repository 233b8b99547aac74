#pragma once
// The optimizer's step by the host's own threads, in every build: of CPU ranks it is what make_optimizer_step
// gives, of GPUs what steps in the host's memory. Without Kokkos.

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "kernels/optimizer/optimizer_step.hpp"

namespace ztrain::kernels {

/// A step in blocks of at most 256 elements, each of which is stepped by itself, so that results do not
/// depend on who takes which.
class HostOptimizerStep {
 public:
  virtual ~HostOptimizerStep() = default;
  /// Of all pieces.
  virtual std::int64_t blocks() const = 0;
  /// Steps blocks [begin, end). scalars: in the host's memory, as are all arrays. From any thread, beside
  /// others that take other blocks; throws nothing.
  virtual void run(std::int64_t begin, std::int64_t end, const StepScalars& scalars) const = 0;
};

/// Throws Error as make_optimizer_step does. With OptimizerArrays::parameter_is_new the parameter is written
/// whole also where no step is taken: it becomes its master.
std::unique_ptr<HostOptimizerStep> make_host_optimizer_step(
    std::string_view rule, const optim::Settings& settings, const OptimizerTypes& types,
    const OptimizerArrays& arrays, std::vector<OptimizerPiece> pieces, Rounding rounding);

}  // namespace ztrain::kernels
