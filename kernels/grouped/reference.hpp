#pragma once
// Linear layers of rows in groups in float64, and their gradients: those of a plain layer, group by group.

#include "kernels/linear/reference.hpp"

namespace ztrain::kernels::reference {

/// Returns y [rows, out] of the rows in groups.
inline std::vector<double> grouped_linear(const std::vector<double>& x, const std::vector<double>& w,
                                          const std::vector<double>& bias,
                                          const std::vector<std::int32_t>& offsets, std::int64_t in,
                                          std::int64_t out) {
  std::vector<double> y(offsets.back() * out);
  for (std::size_t e = 0; e + 1 < offsets.size(); ++e)
    for (std::int64_t r = offsets[e]; r < offsets[e + 1]; ++r)
      for (std::int64_t o = 0; o < out; ++o) {
        const auto at = static_cast<std::int64_t>(e) * out + o;
        double sum = bias.empty() ? 0 : bias[at];
        for (std::int64_t i = 0; i < in; ++i) sum += x[r * in + i] * w[at * in + i];
        y[r * out + o] = sum;
      }
  return y;
}

/// Returns the gradients of all groups: x [rows, in], w [groups, out, in], bias [groups, out].
inline LinearGradients grouped_gradients(const std::vector<double>& x, const std::vector<double>& w,
                                         const std::vector<double>& dy,
                                         const std::vector<std::int32_t>& offsets, std::int64_t in,
                                         std::int64_t out) {
  LinearGradients g{std::vector<double>(x.size()), std::vector<double>(w.size()),
                    std::vector<double>(w.size() / static_cast<std::size_t>(in))};
  for (std::size_t e = 0; e + 1 < offsets.size(); ++e)
    for (std::int64_t r = offsets[e]; r < offsets[e + 1]; ++r)
      for (std::int64_t o = 0; o < out; ++o) {
        const auto at = static_cast<std::int64_t>(e) * out + o;
        const double d = dy[r * out + o];
        g.bias[at] += d;
        for (std::int64_t i = 0; i < in; ++i) {
          g.x[r * in + i] += d * w[at * in + i];
          g.w[at * in + i] += d * x[r * in + i];
        }
      }
  return g;
}

}  // namespace ztrain::kernels::reference
