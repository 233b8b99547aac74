// Meshes of replicate, shard, context and tensor with everything: each degree of an axis,
// way of cutting tokens and layers, strategy, precision, size, kind of training, recomputation, accumulation,
// and packing, windows, tied embeddings, biases and norms of heads with and without meet each of the others
// in some run (pairwise coverage). In each, in fp64, the loss, the norm and the gradient of each parameter
// are those of a single rank; in the run's own precision losses and norms of several steps of AdamW are near
// a single rank's, the same mesh gives the same bits twice, and what is sent over each axis and what memory
// is touched is what was planned. The run with one rank leaves what it computes in files for the others.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/launch/exec.hpp"
#include "tests/support/as_planned.hpp"
#include "tests/support/axes_rows.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/parameter_gradients.hpp"

namespace ztrain::axes_pairs_test {
namespace {

using test::session;
using test::StepResult;
using test::TinyModel;
using test::axes::Precision;
using test::axes::Row;

std::filesystem::path file_of(const std::string& key) {
  return std::filesystem::path(ZTRAIN_TEST_FOLDER) / "axes_pairs" / (key + ".cbor");
}
void write(const std::string& key, const nlohmann::json& what) {
  std::ofstream file(file_of(key), std::ios::binary);
  nlohmann::json::to_cbor(what, file);
  ASSERT_TRUE(file) << file_of(key);
}
nlohmann::json read(const std::string& key) {
  std::ifstream file(file_of(key), std::ios::binary);
  if (!file) throw Error("run this test with one rank first: it writes " + file_of(key).string());
  return nlohmann::json::from_cbor(file);
}

std::string key_of_gradients(const Row& row) {
  return "gradients_" + row.key(false);
}
std::string key_of_steps(const Row& row) {
  std::string precision = row.precision().name;
  std::ranges::replace(precision, ' ', '_');
  return precision + "_" + row.key(row.precision().coded());
}

/// Losses and norms. Slow ones: few tokens that are learned by heart blow rounding up.
std::vector<double> steps(const TinyModel& m, const program::JobSpec& spec) {
  job::Worker worker(session(), m.graph(spec.precision.parameters), spec, {.poison = true});
  const int count = spec.precision.parameters == DType::f32 ? 4 : 3;
  std::vector<double> losses = test::train_losses(worker, m, spec.micro_batches, count, [&](int, auto run) {
    worker.scalars().learning_rate *= 0.1;
    test::expect_planned_bytes(worker, run);
  });
  test::expect_planned_memory(worker);
  return losses;
}

StepResult gradients(const Row& row) {
  const TinyModel m = row.model(false, false);
  return test::step_result(session(), m, row.spec(m, test::axes::f64));
}

program::JobSpec alone(const TinyModel& m, const program::Precision& dtypes) {
  program::JobSpec spec = test::spec_for(m, MeshShape(), "NO_SHARD", dtypes);
  spec.token_multiple = test::axes::alone_multiple(m.fp8 != "none");
  return spec;
}

/// Of narrow types the first norm: steps of AdamW go by signs of gradients, also of those that are rounding.
/// A loss of pairs is one of sums over documents, in which the rounding of all their tokens adds up, however
/// small the loss has become.
void expect_near(const std::vector<double>& expected, const std::vector<double>& found, const Row& row) {
  ASSERT_EQ(found.size(), expected.size());
  const Precision& p = row.precision();
  const bool narrow = p.dtypes.parameters == DType::bf16;
  const bool summed = !row.model(false, true).pair_loss.empty();
  for (std::size_t i = 0; i < found.size(); ++i) {
    const bool is_norm = i % 2 == 1;
    if (narrow && is_norm && i > 1) continue;
    const double size = summed ? 10 * std::max(expected[i], expected[i % 2]) : expected[i];
    EXPECT_NEAR(found[i], expected[i], (is_norm ? p.norm : p.loss) * size)
        << (is_norm ? "the norm" : "the loss") << " of step " << i / 2;
  }
}

void expect_agreement(const Row& row) {
  const nlohmann::json of_one = read(key_of_gradients(row));
  const StepResult whole{of_one.at("loss").get<double>(), of_one.at("norm").get<double>(),
                         of_one.at("gradients").get<std::map<std::string, std::vector<double>>>()};
  const StepResult split = gradients(row);
  test::expect_same(whole, split);
  const Precision& p = row.precision();
  if (p.dtypes.parameters == DType::f64) {
    const StepResult again = gradients(row);
    EXPECT_EQ(again.loss, split.loss);
    EXPECT_EQ(again.norm, split.norm);
    EXPECT_EQ(again.gradients, split.gradients);
    return;
  }
  const TinyModel m = row.model(p.coded(), false);
  const program::JobSpec spec = row.spec(m, p.dtypes);
  const std::vector<double> found = steps(m, spec);
  expect_near(read(key_of_steps(row)).get<std::vector<double>>(), found, row);
  EXPECT_EQ(steps(m, spec), found);
}

/// What a single rank gives for a row, unless another row had the same.
void leave_for_others(const Row& row, std::set<std::string>& left) {
  if (left.insert(key_of_gradients(row)).second) {
    const TinyModel m = row.model(false, true);
    const StepResult result = test::step_result(session(), m, alone(m, test::axes::f64));
    write(key_of_gradients(row),
          {{"loss", result.loss}, {"norm", result.norm}, {"gradients", result.gradients}});
  }
  const Precision& p = row.precision();
  if (p.dtypes.parameters == DType::f64 || !left.insert(key_of_steps(row)).second) return;
  const TinyModel m = row.model(p.coded(), true);
  write(key_of_steps(row), steps(m, alone(m, p.dtypes)));
}

std::string name_of(const test::axes::Mesh& m) {
  return fmt::format("{} x {} x {} ({}) x {}", m.replicate, m.shard, m.context, static_cast<int>(m.method),
                     m.tensor);
}

/// How many pairs of levels such ways of meshes let meet, counted without Pairwise.
std::size_t allowed_pairs(std::vector<test::Levels> ways, bool numbers) {
  for (test::Levels& way : ways)
    if (!numbers) way[test::axes::mesh] = test::no_level;
  std::set<test::LevelPair> of_meshes;
  std::set<std::pair<std::size_t, int>> levels_of_meshes;
  for (const test::Levels& way : ways) {
    of_meshes.merge(test::pairs_of(way));
    for (std::size_t f = 0; f < way.size(); ++f)
      if (way[f] != test::no_level) levels_of_meshes.insert({f, way[f]});
  }
  std::size_t others = 0, of_others = 0;
  for (const int count : test::axes::counts()) {
    of_others += others * static_cast<std::size_t>(count);
    others += static_cast<std::size_t>(count);
  }
  return of_meshes.size() + levels_of_meshes.size() * others + of_others;
}

/// The rows of 2 and of 4 ranks have each pair of levels that their meshes allow, numbers of meshes among
/// them; those of 8 and 16 have most of theirs; and all together have all, on every mesh of the table.
TEST(AxesPairs, MeetEachOther) {
  if (session().size() > 1) GTEST_SKIP() << "the run with one rank knows the rows of all";
  using namespace test::axes;
  const auto of_number = [](const test::LevelPair& pair) { return std::get<0>(pair) == mesh; };
  std::set<test::LevelPair> met_by_any;
  std::vector<test::Levels> ways_of_any;
  std::set<std::string> meshes_run;
  for (const int ranks : rank_counts) {
    const bool numbered = ranks <= 4;
    std::set<test::LevelPair> met;
    const std::vector<Row> rows = rows_of_ranks(ranks);
    for (const Row& row : rows) {
      ASSERT_EQ(row.mesh().ranks(), ranks) << row.name();
      met.merge(test::pairs_of(row.levels()));
      meshes_run.insert(name_of(row.mesh()));
    }
    if (!numbered) std::erase_if(met, of_number);
    const std::size_t allowed = allowed_pairs(ways_of_ranks(ranks), numbered);
    std::printf("%d ranks: %zu rows have %zu of %zu pairs of levels\n", ranks, rows.size(), met.size(),
                allowed);
    EXPECT_GE(met.size(), numbered ? allowed : allowed * 3 / 4) << ranks << " ranks";
    met_by_any.merge(met);
    std::ranges::copy(ways_of_ranks(ranks), std::back_inserter(ways_of_any));
  }
  std::erase_if(met_by_any, of_number);
  const std::size_t allowed = allowed_pairs(ways_of_any, false);
  std::printf("all ranks: %zu of %zu pairs of levels of %d factors\n", met_by_any.size(), allowed,
              static_cast<int>(factors) - 1);
  EXPECT_EQ(met_by_any.size(), allowed);
  for (const Mesh& m : meshes) EXPECT_TRUE(meshes_run.contains(name_of(m))) << name_of(m) << " is not run";
}

TEST(AxesPairs, GiveWhatASingleRankDoes) {
  kernels::initialize_backend();
  int number = 0;
  if (session().size() > 1) {
    for (const Row& row : test::axes::rows_of_ranks(session().size())) {
      SCOPED_TRACE(row.name());
      expect_agreement(row);
      if (HasFailure()) break;
      ++number;
    }
  } else {
    std::filesystem::create_directories(file_of("").parent_path());
    std::set<std::string> left;
    for (const int ranks : test::axes::rank_counts)
      for (const Row& row : test::axes::rows_of_ranks(ranks)) leave_for_others(row, left);
    number = static_cast<int>(left.size());
  }
  if (session().rank() == 0)
    std::printf("%d %s\n", number, session().size() > 1 ? "rows" : "results of a single rank");
}

}  // namespace
}  // namespace ztrain::axes_pairs_test
