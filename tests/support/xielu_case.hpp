#pragma once
// Inputs of xIELU and what float64 makes of them, for tests of its kernels.

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/activation/reference.hpp"
#include "kernels/activation/xielu.hpp"
#include "tests/support/kernel_arrays.hpp"

namespace ztrain::test {

/// Half a unit in the last place of acc_t<T>, relative.
template <class T>
constexpr double acc_rounding = std::is_same_v<T, double> ? 0x1p-53 : 0x1p-24;

/// A case of xIELU, and what float64 makes of it.
template <class T, class G>
struct XieluCase {
  std::int64_t rows;
  Array<T> x, dy, parameters{static_cast<T>(0.25f), static_cast<T>(-0.75f)};
  kernels::reference::XieluConstants constants;
  std::vector<double> y, dx;
  double dp = 0, dn = 0, size = 0;

  XieluCase(std::int64_t rows_, std::int64_t n, double eps)
      : rows(rows_),
        x(random<T>(rows * n, 1, 3)),
        dy(random<T>(rows * n, 2)),
        constants{0.25, -0.75, 0.5, eps} {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto at = static_cast<double>(x[i]), gradient = static_cast<double>(dy[i]);
      const kernels::reference::XieluSlopes slopes = kernels::reference::xielu_slopes(at, constants);
      y.push_back(kernels::reference::xielu(at, constants));
      dx.push_back(gradient * slopes.x);
      dp += gradient * slopes.p;
      dn += gradient * slopes.n;
      size += std::abs(gradient) * (slopes.p + std::abs(slopes.n));
    }
  }
  kernels::XieluConstants<T> views() const {
    return {parameters.data(), parameters.data() + 1, constants.beta, constants.eps};
  }
  /// Holds the gradients against float64. The sums were added to old_p and old_n.
  void check(const Array<T>& got_dx, const Array<G>& sums, double old_p, double old_n) const {
    expect_close(got_dx, dx, 1e2 * acc_rounding<T>, "dx");
    const double error = 16 * acc_rounding<T> * size;
    expect_close(sums, {old_p + dp, old_n + dn}, error, "dp, dn");
  }
};

/// f(case) for matrices of many shapes.
template <class T, class G, class F>
void for_xielu_cases(const F& f) {
  for (const double eps : {-1e-6, -0.25})
    for (const std::int64_t rows : {1, 7, 300})
      for (const std::int64_t n : {1, 8, 250, 1030}) {
        SCOPED_TRACE(testing::Message() << rows << " x " << n << ", eps " << eps);
        f(XieluCase<T, G>(rows, n, eps));
      }
}

}  // namespace ztrain::test
