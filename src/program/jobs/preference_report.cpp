#include "program/jobs/preference_report.hpp"

#include "kernels/preference/record.hpp"
#include "program/ops/emit.hpp"

namespace ztrain::program {
namespace {

constexpr Action end_of_all{ActionKind::norm, -1, -1};

/// Appends the all-reduce of every rank's report. of_tokens: as PreferenceReport.
void append_report(Program& program, const std::string& name, TensorId to, TensorId reported,
                   bool of_tokens) {
  const Coordinate at(program.mesh, program.rank);
  Tensor sums = program.tensor(to);
  sums.name = name + ".own";
  sums.persistent = false;
  const TensorId own = program.add(std::move(sums));
  std::vector<TensorId> inputs;
  if (reported != no_tensor) inputs.push_back(reported);
  const bool counts = at[Axis::tensor] == 0 && (of_tokens || at.index_in(context_axes) == 0);
  add_op(program, PreferenceReport{counts, of_tokens}, "", end_of_all, std::move(inputs), {own});
  emit_all_reduce(program, name, own, to, AxisSet::all(), end_of_all);
}

void give(Program& program, const std::string& name, TensorId reported, TensorId to) {
  if (reported != no_tensor) emit_copy(program, name, reported, to, end_of_all);
}

}  // namespace

void append_preference_report(Program& program, const PreferenceTensors& to,
                              const PreferenceTensors& reported) {
  if (to.report != no_tensor) append_report(program, "preference", to.report, reported.report, false);
}

void append_distillation_report(Program& program, const TeacherTensors& to, const TeacherTensors& reported) {
  if (to.report != no_tensor) append_report(program, "distillation", to.report, reported.report, true);
}

void give_logps(Program& program, const PreferenceTensors& to, const PreferenceTensors& reported) {
  give(program, "preference.logps", reported.logps, to.logps);
}

void give_likelihoods(Program& program, const TeacherTensors& to, const TeacherTensors& reported) {
  give(program, "teacher.words", reported.words, to.words);
  give(program, "teacher.log_likelihoods", reported.log_likelihoods, to.log_likelihoods);
}

}  // namespace ztrain::program
