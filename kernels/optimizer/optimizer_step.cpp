#include "kernels/optimizer/optimizer_step.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/optimizer/optimizer_host.hpp"
#include "kernels/optimizer/optimizer_launch.hpp"

namespace ztrain::kernels {
namespace {

static_assert(optim::block == quantum);

/// On a CPU: the host's loops, shared by the threads of the execution space.
class StepOfHost final : public OptimizerStep {
 public:
  explicit StepOfHost(std::unique_ptr<HostOptimizerStep> step) : step_(std::move(step)) {}

  void run(Exec& exec, const StepScalars* scalars) override { run_on(exec, *step_, scalars); }

 private:
  static constexpr std::int64_t each = 16;  ///< blocks to a thread at once

  /// A template, so that builds for GPUs have none.
  template <class Step>
  static void run_on(Exec& exec, const Step& step, const StepScalars* scalars) {
    if constexpr (!on_gpu) {
      const std::int64_t blocks = step.blocks();
      for_rows(exec, ceil_div(blocks, each), [=, &step](const std::int64_t i) {
        step.run(i * each, std::min(blocks, (i + 1) * each), *scalars);
      });
    }
  }

  std::unique_ptr<HostOptimizerStep> step_;
};

}  // namespace

std::unique_ptr<OptimizerStep> make_optimizer_step(std::string_view rule, const optim::Settings& settings,
                                                   const OptimizerTypes& types, const OptimizerArrays& arrays,
                                                   std::vector<OptimizerPiece> pieces, Rounding rounding) {
  ASSERT(!arrays.parameter_is_new, "{}: kernels of the device leave a parameter that they do not step alone",
         rule);
  const StepRequest request{rule, settings, types, arrays};
  std::unique_ptr<OptimizerStep> made;
  const auto make = [&]<class Rule, class T, class States>() {
    using Data = StepData<Rule, T, States>;
    static_assert(carried<StepTeam<Rule, Data>>);
    if constexpr (on_gpu)
      made = std::make_unique<StepOnGpu<Rule, Data>>(Data(arrays, settings, rounding), std::move(pieces));
  };
  if (on_gpu) request.check(pieces);
  ForCombination(request, make);
  if constexpr (on_gpu) {
    if (!made) request.fail_for_types();
    return made;
  } else {
    return std::make_unique<StepOfHost>(
        make_host_optimizer_step(rule, settings, types, arrays, std::move(pieces), rounding));
  }
}

}  // namespace ztrain::kernels
