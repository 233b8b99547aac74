#include "program/jobs/preference_report.hpp"

#include "kernels/preference/record.hpp"
#include "program/ops/emit.hpp"

namespace ztrain::program {

void append_preference_report(Program& program, const PreferenceTensors& to,
                              const PreferenceTensors& reported) {
  if (to.report == no_tensor) return;
  const Action action{ActionKind::norm, -1, -1};
  const Coordinate at(program.mesh, program.rank);
  Tensor sums = program.tensor(to.report);
  sums.name = "preference.own";
  sums.persistent = false;
  const TensorId own = program.add(std::move(sums));
  std::vector<TensorId> inputs;
  if (reported.report != no_tensor) inputs.push_back(reported.report);
  add_op(program, PreferenceReport{at[Axis::tensor] == 0 && at.index_in(context_axes) == 0}, "", action,
         std::move(inputs), {own});
  emit_all_reduce(program, "preference", own, to.report, AxisSet::all(), action);
}

void give_logps(Program& program, const PreferenceTensors& to, const PreferenceTensors& reported) {
  if (reported.logps == no_tensor) return;
  emit_copy(program, "preference.logps", reported.logps, to.logps, {ActionKind::norm, -1, -1});
}

}  // namespace ztrain::program
