// How the tokens of a step are spread over experts.

#include <gtest/gtest.h>

#include "kernels/load/load.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_load_test {
namespace {

using namespace ztrain::test;

/// Rows of four micro-batches begin with the counts of three experts; the rest of a row does not count.
template <class T>
void expect_counts() {
  TestExec exec;
  const Array<T> sums{1, 0, 5, 9, 9, 2, 0, 1, 9, 9, 0, 0, 7, 9, 9, 3, 0, 2, 9, 9};
  Array<double> counts(3);
  count_experts<T>(*exec, {sums.data(), 4, 5}, {counts.data(), 3});
  EXPECT_EQ(doubles(counts), (std::vector<double>{6, 0, 15}));
}

TEST(CountExperts, AddsTheRowsOfMicroBatches) {
  expect_counts<float>();
  expect_counts<double>();
}

TEST(LargestLoad, IsOfTheWorstLayer) {
  TestExec exec;
  const Array<double> counts{6, 0, 15, 3, 2, 2, 2, 2, 0, 0, 8, 0};
  Array<double> workspace(6);
  for (const bool counts_idle : {true, false}) {
    Shared<ExpertsPartial> partial(ExpertsPartial{1, 2, 3, 4});
    largest_load(*exec, {counts.data(), 3, 4}, counts_idle, workspace.data(), partial.get());
    EXPECT_EQ(partial->load_max, 4) << "all 8 tokens of the third layer, whose mean is 2";
    EXPECT_EQ(partial->idle, counts_idle ? 4 : 0);
    EXPECT_EQ(partial->balance_sum, 1);
    EXPECT_EQ(partial->z_sum, 2);
  }
}

/// Two layers of three experts, whose biases begin 4 elements apart. Sums of three steps of 0.1 are those of
/// T.
template <class T>
void expect_moved() {
  TestExec exec;
  const Array<double> counts{9, 2, 1, 2, 5, 8};
  Array<T> biases{T(1), T(1), T(0), T(7), T(1), T(2), T(1), T(7)};
  const auto move = [&](double found_inf) {
    StepScalars scalars;
    scalars.found_inf = found_inf;
    Shared<StepScalars> shared(scalars);
    move_biases<T>(*exec, {counts.data(), 2, 3}, shared.get(), 0.1, {biases.data(), 4});
    return doubles(biases);
  };
  T up = 1, down = 1, from_zero = 0;
  for (int i = 0; i < 3; ++i) {
    up += T(0.1), down -= T(0.1), from_zero += T(0.1);
    EXPECT_EQ(move(0), (std::vector<double>{down, up, from_zero, 7, up, 2, down, 7}));
  }
  EXPECT_EQ(move(1), (std::vector<double>{down, up, from_zero, 7, up, 2, down, 7}))
      << "a step that is skipped";
}

TEST(MoveBiases, GoTowardsTheMeanOfTheirLayer) {
  expect_moved<float>();
  expect_moved<double>();
}

/// Counts whose mean is no number of fp32 or fp64: a third of 3 x 2^40 + 1.
TEST(MoveBiases, ComparesWholeNumbers) {
  TestExec exec;
  constexpr double mean = 1099511627776;
  const Array<double> counts{mean, mean + 1, mean};
  Array<double> biases(3);
  Shared<StepScalars> scalars(StepScalars{});
  move_biases<double>(*exec, {counts.data(), 1, 3}, scalars.get(), 1, {biases.data(), 0});
  EXPECT_EQ(doubles(biases), (std::vector<double>{1, -1, 1}));
}

}  // namespace
}  // namespace ztrain::kernels::kernels_load_test
