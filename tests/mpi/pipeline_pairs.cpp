// Pipelines of 1, 2, 3, 4 and 8 ranks with everything, on 1 to 16 ranks: each number of stages, schedule,
// strategy, axis, kind of model, type, recomputation, accumulation, number of micro-batches, home of the
// states and choice of late weights meets each of the others in some run (pairwise coverage). In each, in
// fp64, the loss, the norm and the gradient of each parameter are those of a single rank. In the run's own
// types losses and norms of several steps are near a single rank's; they are, bit for bit, those of 1f1b on
// the same mesh, or of the same steps again; and every stage sends, and holds, what was planned. The run with
// one rank leaves what it computes in files for the others.

#include <gtest/gtest.h>

#include "kernels/launch/exec.hpp"
#include "tests/support/pipeline_rows.hpp"

namespace ztrain::pipeline_pairs_test {
namespace {

using test::session;
using test::StepResult;
using test::StepTypes;
using test::TinyModel;
using test::stages::Row;

std::string key_of_step(const Row& row) {
  return "step_" + row.key(false);
}
std::string key_of_steps(const Row& row) {
  return fmt::format("{}_{}", row.step_types().coded() ? "coded" : row.step_types().name,
                     row.key(row.step_types().coded()));
}

job::WorkerOptions options() {
  job::WorkerOptions options;
  options.nvme.paths = {std::filesystem::temp_directory_path()};
  return options;
}

/// Of 8-bit moments where types are narrow.
program::JobSpec with_optimizer(program::JobSpec spec) {
  if (spec.precision.parameters == DType::bf16) spec.optimizer.options.name = "adamw_8bit";
  return spec;
}

StepResult step(const Row& row, const char* schedule) {
  const TinyModel m = row.model(false, false);
  return test::step_result(session(), m, row.spec(m, test::f64, schedule), options());
}

std::vector<double> steps(const Row& row, const char* schedule, int count) {
  const StepTypes& types = row.step_types();
  const TinyModel m = row.model(types.coded(), false);
  return test::planned_steps(m, with_optimizer(row.spec(m, types.dtypes, schedule)), count, options());
}

void expect_agreement(const Row& row, const test::SingleRank& single) {
  const StepTypes& types = row.step_types();
  const char* other = row.has_the_bits_of_1f1b() ? "1f1b" : row.schedule_name();
  const StepResult split = step(row, row.schedule_name());
  test::expect_same(single.step(key_of_step(row)), split);
  if (types.dtypes.parameters == DType::f64) {
    const StepResult again = step(row, other);
    EXPECT_EQ(again.loss, split.loss);
    EXPECT_EQ(again.norm, split.norm);
    EXPECT_EQ(again.gradients, split.gradients);
    return;
  }
  std::vector<double> found = steps(row, row.schedule_name(), test::steps_of(types));
  StepTypes bounds = types;
  // A reward is the value of one token, and no mean over many evens its rounding out.
  if (types.coded() && row.model(true, false).pair_loss == "reward") bounds.loss *= 2;
  test::expect_near(single.steps(key_of_steps(row)), found, bounds);
  const std::vector<double> again = steps(row, other, 2);
  found.resize(again.size());
  EXPECT_EQ(again, found) << "beside " << other;
}

/// What a single rank gives for a row, unless another row had the same.
void leave_for_others(const Row& row, test::SingleRank& single) {
  if (single.lacks(key_of_step(row))) {
    const TinyModel m = row.model(false, true);
    single.leave(key_of_step(row), test::step_result(session(), m, row.spec_alone(m, test::f64)));
  }
  const StepTypes& types = row.step_types();
  if (types.dtypes.parameters == DType::f64 || !single.lacks(key_of_steps(row))) return;
  const TinyModel m = row.model(types.coded(), true);
  const program::JobSpec spec = with_optimizer(row.spec_alone(m, types.dtypes));
  single.leave(key_of_steps(row), test::planned_steps(m, spec, test::steps_of(types)));
}

TEST(PipelinePairs, GiveWhatASingleRankDoes) {
  kernels::initialize_backend();
  test::SingleRank single(std::filesystem::path(ZTRAIN_TEST_FOLDER) / "pipeline_pairs");
  const std::vector<Row> rows = test::stages::all_rows();
  if (session().size() == 1)
    for (const Row& row : rows) leave_for_others(row, single);
  int number = 0;
  for (const Row& row : rows) {
    if (row.ranks() != session().size()) continue;
    SCOPED_TRACE(row.name());
    expect_agreement(row, single);
    if (HasFailure()) break;
    ++number;
  }
  EXPECT_GT(number, 0);
  if (session().rank() == 0) std::printf("%d of %zu rows over 13 factors\n", number, rows.size());
}

}  // namespace
}  // namespace ztrain::pipeline_pairs_test
