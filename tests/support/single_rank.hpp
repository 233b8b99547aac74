#pragma once
// What a single rank computes, which the run of a test with one rank leaves in files for those with more:
// the loss, the norm and all gradients of a step in fp64, and losses and norms of several steps in the types
// that training has.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/support/as_planned.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/parameter_gradients.hpp"

namespace ztrain::test {

/// The types of several steps.
struct StepTypes {
  const char* name;
  program::Precision dtypes;
  const char* fp8 = "none";
  /// How far losses and norms may be from those of a single rank, relatively.
  double loss, norm;
  bool coded() const { return std::string_view(fp8) != "none"; }
};

inline constexpr program::Precision f32{DType::f32, DType::f32, DType::f32, DType::f32, DType::f32};
inline constexpr program::Precision mixed{DType::bf16, DType::f32, DType::f32, DType::f32, DType::f32};
inline constexpr program::Precision f64{DType::f64, DType::f64, DType::f64, DType::f64, DType::f64};
inline constexpr StepTypes step_types[] = {{"fp64", f64, "none", 1e-12, 1e-12},
                                           {"fp32", f32, "none", 1e-5, 1e-5},
                                           {"bf16", mixed, "none", 4e-3, 4e-2},
                                           {"fp8 tensorwise", mixed, "tensorwise", 4e-3, 4e-2},
                                           {"fp8 rowwise", mixed, "rowwise", 4e-3, 4e-2}};

/// So many steps of fp32, and of others, whose rounding soon tells them apart.
inline int steps_of(const StepTypes& types) {
  return types.dtypes.parameters == DType::f32 ? 10 : 3;
}

class SingleRank {
 public:
  explicit SingleRank(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Whether nothing of that name was left yet, which is then to be.
  bool lacks(const std::string& key) { return left_.insert(key).second; }
  int left() const { return static_cast<int>(left_.size()); }

  void leave(const std::string& key, const StepResult& step) const {
    write(key, {{"loss", step.loss}, {"norm", step.norm}, {"gradients", step.gradients}});
  }
  void leave(const std::string& key, const std::vector<double>& steps) const { write(key, steps); }

  StepResult step(const std::string& key) const {
    const nlohmann::json found = read(key);
    return {found.at("loss").get<double>(), found.at("norm").get<double>(),
            found.at("gradients").get<std::map<std::string, std::vector<double>>>()};
  }
  std::vector<double> steps(const std::string& key) const { return read(key).get<std::vector<double>>(); }

 private:
  std::filesystem::path file_of(const std::string& key) const { return folder_ / (key + ".cbor"); }
  void write(const std::string& key, const nlohmann::json& what) const {
    std::filesystem::create_directories(folder_);
    std::ofstream file(file_of(key), std::ios::binary);
    nlohmann::json::to_cbor(what, file);
    ASSERT_TRUE(file) << file_of(key);
  }
  nlohmann::json read(const std::string& key) const {
    std::ifstream file(file_of(key), std::ios::binary);
    if (!file) throw Error("run this test with one rank first: it writes " + file_of(key).string());
    return nlohmann::json::from_cbor(file);
  }

  std::filesystem::path folder_;
  std::set<std::string> left_;
};

/// Losses and norms of steps that each send what was planned, in memory that is as planned. Slow ones: few
/// tokens that are learned by heart blow rounding up.
inline std::vector<double> planned_steps(const TinyModel& m, const program::JobSpec& spec, int count,
                                         job::WorkerOptions options = {}) {
  options.poison = true;
  job::Worker worker(session(), m.graph(spec.precision.parameters), spec, options);
  std::vector<double> found = train_losses(worker, m, spec.micro_batches, count, [&](int, auto run) {
    worker.scalars().learning_rate *= 0.1;
    expect_planned_bytes(worker, run);
  });
  expect_planned_tiers(worker);
  return found;
}

/// Of narrow types the first norm: steps of AdamW go by signs of gradients, also of those that are rounding.
inline void expect_near(const std::vector<double>& expected, const std::vector<double>& found,
                        const StepTypes& types) {
  ASSERT_EQ(found.size(), expected.size());
  const bool narrow = types.dtypes.parameters == DType::bf16;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const bool is_norm = i % 2 == 1;
    if (narrow && is_norm && i > 1) continue;
    EXPECT_NEAR(found[i], expected[i], (is_norm ? types.norm : types.loss) * expected[i])
        << (is_norm ? "the norm" : "the loss") << " of step " << i / 2;
  }
}

}  // namespace ztrain::test
