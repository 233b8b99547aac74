// What GPUs run for xIELU, by threads of the host: against float64.

#include <gtest/gtest.h>

#include "kernels/activation/xielu_rows.hpp"
#include "tests/support/host_threads.hpp"
#include "tests/support/xielu_case.hpp"

namespace ztrain::kernels::kernels_activation_threads_test {
namespace {

using namespace ztrain::test;

template <class P>
struct ThreadsXielu : ::testing::Test {};
TYPED_TEST_SUITE(ThreadsXielu, GradientPairs);

TYPED_TEST(ThreadsXielu, MatchesTheReference) {
  using T = typename TypeParam::T;
  using G = typename TypeParam::G;
  for_xielu_cases<T, G>([](const XieluCase<T, G>& c) {
    Array<T> dx(c.x.size());
    Array<G> sums{static_cast<G>(2.0f), static_cast<G>(-3.0f)};
    std::vector<double> workspace(static_cast<std::size_t>(2 * c.rows));
    const auto width = static_cast<std::int64_t>(c.x.size()) / c.rows;
    const XieluRow<T> row{c.views(), c.x.data(), c.dy.data(), dx.data(), width, workspace.data()};
    const XieluAlphas<T, G> alphas{c.views(), workspace.data(), c.rows, true, &sums[0], &sums[1]};
    // The threads of a row wait for each other several times: of many rows each has one thread.
    run_threads(c.rows > 7 ? 1 : 8, [&](const HostThreads& threads) {
      for (std::int64_t r = 0; r < c.rows; ++r) row.by(threads, r);
    });
    run_threads(8, [&](const HostThreads& threads) { alphas.by(threads, 0); });
    c.check(dx, sums, 2, -3);
  });
}

}  // namespace
}  // namespace ztrain::kernels::kernels_activation_threads_test
