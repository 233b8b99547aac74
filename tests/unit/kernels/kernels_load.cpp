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

}  // namespace
}  // namespace ztrain::kernels::kernels_load_test
