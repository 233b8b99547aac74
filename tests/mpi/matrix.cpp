// Every knob against every other: strategies, accumulation, prefetch, lifetimes, units, recompute, precision,
// optimizers, what models have, 8-bit products and codes of gradients, each pair of settings together in some
// run (pairwise coverage). In each run
//   - losses and gradient norms are bit for bit those of NO_SHARD without any of the knobs that only place
//     things, on the same mesh with the same numeric settings;
//   - they are near those of a single rank, which the run with one rank leaves in a file for the others;
//   - with one rank, narrow types are near fp32;
//   - the bytes that the communicators count are the planned ones, and so is the memory that is touched.
// Memory is poisoned when its life is over. ZTRAIN_MATRIX=full adds rows that are drawn at random.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "kernels/launch/exec.hpp"
#include "model/tensor_plan.hpp"
#include "program/passes/place.hpp"
#include "tests/support/as_planned.hpp"
#include "tests/support/matrix_factors.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/pairwise.hpp"
#include "tests/support/test_memory.hpp"
#include "tests/support/tiny_job.hpp"
#include "train/audits.hpp"

namespace ztrain::matrix_test {
namespace {

using program::JobSpec;
using test::session;
using test::TinyModel;
using test::matrix::Factor;
using test::matrix::Level;

constexpr int steps = 3;
constexpr std::int64_t accumulation = 2;
constexpr int drawn_rows = 300;  // in the full matrix, beyond the pairwise ones

class Matrix : public testing::Test {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }

  Matrix() : factors_(test::matrix::factors()) { model_.global = 4 * accumulation; }

  JobSpec spec_of(const std::vector<int>& row) const {
    JobSpec spec;
    for (std::size_t f = 0; f < factors_.size(); ++f) level(row, f).set(spec);
    spec.optimizer.seed = 11;
    if (spec.mesh[Axis::tensor] > 1)
      spec.tensor = model::decoder_tensor_plan(dims_of(row).dims, spec.mesh[Axis::tensor]);
    spec.micro_batches = static_cast<int>(model_.global / spec.mesh.size(Axis::replicate | Axis::shard));
    return spec;
  }
  const Level& level(const std::vector<int>& row, std::size_t factor) const {
    return factors_[factor].levels[static_cast<std::size_t>(row[factor])];
  }
  TinyModel model_of(const std::vector<int>& row) const {
    TinyModel model = dims_of(row);
    const program::JobSpec spec = spec_of(row);
    model.token_order = program::token_order(spec.mesh, spec.context);
    return model;
  }
  TinyModel dims_of(const std::vector<int>& row) const {
    TinyModel model = model_;
    for (std::size_t f = 0; f < row.size(); ++f) {
      model.loss_scale = std::max(model.loss_scale, level(row, f).loss_scale);
      if (level(row, f).dims) level(row, f).dims(model.dims);
    }
    return model;
  }
  /// Factor and number of a level.
  std::pair<std::size_t, int> find_level(std::string_view name) const {
    for (std::size_t f = 0; f < factors_.size(); ++f)
      for (std::size_t l = 0; l < factors_[f].levels.size(); ++l)
        if (factors_[f].levels[l].name == name) return {f, static_cast<int>(l)};
    throw std::out_of_range(std::string(name));
  }
  std::string name_of(const std::vector<int>& row, bool numeric_only) const {
    std::string name;
    for (std::size_t f = 0; f < row.size(); ++f)
      if (factors_[f].numeric || !numeric_only)
        name += (name.empty() ? "" : " | ") + std::string(level(row, f).name);
    return name;
  }

  /// The losses of the row with nothing but its numeric settings, on this mesh.
  const std::vector<double>& reference(std::vector<int> row) {
    const std::string name = name_of(row, true);
    const auto found = references_.find(name);
    if (found != references_.end()) return found->second;
    for (std::size_t f = 0; f < row.size(); ++f)
      if (!factors_[f].numeric) row[f] = 0;
    return references_[name] = test::losses_of(session(), model_of(row), spec_of(row), steps);
  }

  /// Whether this device has all that the row asks for.
  bool possible(const std::vector<int>& row) const {
    for (std::size_t f = 0; f < row.size(); ++f) {
      const std::string_view name = level(row, f).name;
      if (name.starts_with("fp8") && !test::lack_of_fp8(name.ends_with("rowwise")).empty()) return false;
    }
    return true;
  }

  std::vector<std::vector<int>> rows() const {
    std::vector<int> levels;
    for (const Factor& f : factors_) levels.push_back(static_cast<int>(f.levels.size()));
    auto chosen = test::Pairwise(levels).rows();
    const char* which = std::getenv("ZTRAIN_MATRIX");
    if (which == nullptr || std::string(which) != "full") return chosen;
    for (int r = 0; r < drawn_rows; ++r) {
      chosen.emplace_back();
      for (std::size_t f = 0; f < levels.size(); ++f)
        chosen.back().push_back(static_cast<int>(philox(29, static_cast<std::uint64_t>(r), f)[0] %
                                                 static_cast<std::uint64_t>(levels[f])));
    }
    return chosen;
  }

  void expect_near(const std::vector<int>& row, const std::vector<double>& expected) {
    SCOPED_TRACE(name_of(row, true));
    double tolerance = 0;
    for (std::size_t f = 0; f < row.size(); ++f) tolerance = std::max(tolerance, level(row, f).tolerance);
    // Where layers or sequences are cut, parts of sums are rounded before they are added.
    const JobSpec spec = spec_of(row);
    if (spec.mesh[Axis::tensor] * spec.mesh[Axis::context] > 1) {
      if (spec.precision.parameters == DType::bf16) tolerance = std::max(tolerance, 4e-3);
      if (spec.precision.parameters == DType::f16) tolerance = std::max(tolerance, 5e-4);
    }
    const std::vector<double>& losses = reference(row);
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); i += 2)
      EXPECT_NEAR(losses[i], expected[i], tolerance * expected[i]) << "step " << i / 2;
    EXPECT_NEAR(losses[1], expected[1], tolerance * expected[1]) << "the first gradient norm";
  }

  std::vector<Factor> factors_;
  TinyModel model_;
  std::map<std::string, std::vector<double>> references_;
};

/// What an audit finds where nothing is wrong.
void expect_same_twice(job::Worker& worker) {
  worker.copied_state();
  const StepScalars scalars = worker.scalars();
  const job::StepDifference difference = job::step_twice(
      worker, [&] { worker.restore_copied(); }, [&](StepScalars& to) { to = scalars; });
  EXPECT_EQ(difference.results, std::vector<std::string>{});
  EXPECT_FALSE(difference.op) << difference.op->text;
}

TEST_F(Matrix, PlacementChangesNoBitAndPlansAreExact) {
  int number = 0;
  for (const std::vector<int>& row : rows()) {
    if (!possible(row)) continue;
    SCOPED_TRACE(name_of(row, false));
    JobSpec spec = spec_of(row);
    spec.snapshots = program::Snapshots::of_all;
    const std::vector<double>& expected = reference(row);
    job::Worker worker(session(), model_of(row).graph(spec.precision.parameters), spec, {.poison = true});
    const auto losses =
        test::train_losses(worker, model_of(row), spec.micro_batches, steps, [&](int step, auto run) {
          if (step == 0) return expect_same_twice(worker);
          test::expect_planned_bytes(worker, run);
          EXPECT_EQ(worker.scalars().found_inf, 0) << "step " << step << " changed nothing";
        });
    EXPECT_EQ(losses, expected);
    EXPECT_EQ(train::differing_copies(session(), job::held_pieces(worker)).text, "");
    test::expect_planned_memory(worker);
    ++number;
  }
  if (session().rank() == 0) std::printf("%d rows over %zu factors\n", number, factors_.size());
}

/// Narrow types, loss scales and codes stay near fp32. Steps of sgd are as long as its gradients, so that
/// nothing may be scaled wrongly on all meshes alike.
TEST_F(Matrix, NarrowTypesAreNearFp32) {
  if (session().size() > 1) GTEST_SKIP() << "the other tests compare the meshes";
  const auto [precision, fp32] = find_level("fp32");
  const auto [optimizer, sgd] = find_level("sgd");
  const int adamw = find_level("adamw").second, codes = find_level("adamw_8bit").second;
  for (const auto& [exact, near] : {std::pair{sgd, sgd}, {adamw, codes}}) {
    std::vector<int> row(factors_.size(), 0);
    row[optimizer] = exact;
    row[precision] = fp32;
    const std::vector<double> expected = reference(row);
    row[optimizer] = near;
    for (std::size_t p = 0; p < factors_[precision].levels.size(); ++p) {
      row[precision] = static_cast<int>(p);
      SCOPED_TRACE(name_of(row, true));
      const std::vector<double>& found = reference(row);
      for (std::size_t i = 0; i < found.size(); i += 2)
        EXPECT_NEAR(found[i], expected[i], 1e-3 * expected[i]) << "step " << i / 2;
      EXPECT_NEAR(found[1], expected[1], 2e-3 * expected[1]) << "the first gradient norm";
    }
  }
}

/// With one rank: writes the losses of all numeric settings. With more: compares with them.
TEST_F(Matrix, NumericSettingsAgreeWithASingleRank) {
  const std::string path = std::string(ZTRAIN_TEST_FOLDER) + "/matrix_single_rank.json";
  std::vector<int> levels;
  for (std::size_t f = 1; f < factors_.size(); ++f)
    levels.push_back(factors_[f].numeric ? static_cast<int>(factors_[f].levels.size()) : 1);
  nlohmann::json single;
  if (session().size() > 1) {
    std::ifstream file(path);
    ASSERT_TRUE(file) << "run this test with one rank first: it writes " << path;
    single = nlohmann::json::parse(file);
  }
  int number = 0;
  for (std::vector<int> row : test::Pairwise(levels).rows()) {
    row.insert(row.begin(), 0);
    if (!possible(row)) continue;
    const std::string name = name_of(row, true);
    if (session().size() == 1) single[name] = reference(row);
    // Of many meshes every other one, in turn.
    const int meshes = static_cast<int>(factors_[0].levels.size()), step = meshes > 3 ? 2 : 1;
    for (int mesh = number++ % step; session().size() > 1 && mesh < meshes; mesh += step) {
      row[0] = mesh;
      if (possible(row)) expect_near(row, single.at(name).get<std::vector<double>>());
    }
  }
  if (session().size() == 1) std::ofstream(path) << single.dump(1) << "\n";
}

}  // namespace
}  // namespace ztrain::matrix_test
