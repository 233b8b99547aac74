#include "plan/rates/fit_rates.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/error.hpp"
#include "base/shape.hpp"

namespace ztrain::plan {
namespace {

using Rows = std::vector<std::vector<double>>;

/// Solves a x = b by elimination with pivots. Nothing if the rows of a depend on each other.
std::optional<std::vector<double>> solution(Rows a, std::vector<double> b) {
  const std::size_t n = b.size();
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k + 1; i < n; ++i)
      if (std::abs(a[i][k]) > std::abs(a[pivot][k])) pivot = i;
    if (std::abs(a[pivot][k]) < 1e-10) return {};
    std::swap(a[k], a[pivot]);
    std::swap(b[k], b[pivot]);
    for (std::size_t i = k + 1; i < n; ++i) {
      const double times = a[i][k] / a[k][k];
      for (std::size_t j = k; j < n; ++j) a[i][j] -= times * a[k][j];
      b[i] -= times * b[k];
    }
  }
  for (std::size_t k = n; k-- > 0;) {
    for (std::size_t j = k + 1; j < n; ++j) b[k] -= a[k][j] * b[j];
    b[k] /= a[k][k];
  }
  return b;
}

double squares(const Rows& rows, const std::vector<double>& wanted, const std::vector<double>& x) {
  double sum = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    double apart = -wanted[r];
    for (std::size_t i = 0; i < x.size(); ++i) apart += rows[r][i] * x[i];
    sum += apart * apart;
  }
  return sum;
}

/// Returns the least squares of the numbers in `used`, each of whose columns was divided by `scale`.
std::optional<std::vector<double>> with(const Rows& rows, const std::vector<double>& wanted,
                                        const std::vector<std::size_t>& used,
                                        const std::vector<double>& scale) {
  Rows products(used.size(), std::vector<double>(used.size(), 0));
  std::vector<double> to(used.size(), 0);
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::size_t i = 0; i < used.size(); ++i) {
      const double own = rows[r][used[i]] / scale[used[i]];
      to[i] += own * wanted[r];
      for (std::size_t j = 0; j < used.size(); ++j) products[i][j] += own * rows[r][used[j]] / scale[used[j]];
    }
  const auto found = solution(std::move(products), std::move(to));
  if (!found || std::ranges::any_of(*found, [](double x) { return x < 0; })) return {};
  std::vector<double> x(scale.size(), 0);
  for (std::size_t i = 0; i < used.size(); ++i) x[used[i]] = (*found)[i] / scale[used[i]];
  return x;
}

}  // namespace

std::vector<double> least_squares(const Rows& rows, const std::vector<double>& wanted) {
  const std::size_t count = rows.empty() ? 0 : rows[0].size();
  ASSERT(count <= 8 && rows.size() == wanted.size(), "{} numbers of {} rows, {} wanted", count, rows.size(),
         wanted.size());
  std::vector<double> scale(count, 0), best(count, 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < count; ++i) scale[i] += row[i] * row[i];
  for (double& s : scale) s = std::sqrt(s);
  double least = squares(rows, wanted, best);
  for (unsigned set = 1; set < 1u << count; ++set) {
    std::vector<std::size_t> used;
    for (std::size_t i = 0; i < count; ++i)
      if ((set >> i & 1u) != 0) used.push_back(i);
    if (std::ranges::any_of(used, [&](std::size_t i) { return scale[i] == 0; })) continue;
    const auto x = with(rows, wanted, used, scale);
    if (!x) continue;
    // A further number has to be worth more than rounding.
    if (const double sum = squares(rows, wanted, *x); sum < least * (1 - 1e-9)) least = sum, best = *x;
  }
  return best;
}

KernelRate fit_kernel(std::span<const Measurement> measured) {
  Rows rows;
  for (const Measurement& m : measured)
    if (m.seconds > 0)
      rows.push_back(
          {1 / m.seconds, m.work.bytes / m.seconds, m.work.flops / m.seconds, m.work.hops / m.seconds});
  if (rows.empty()) return {};
  const std::vector<double> x = least_squares(rows, std::vector<double>(rows.size(), 1));
  return {x[0], x[1], x[2], x[3]};
}

FitError error_of(const KernelRate& rate, std::span<const Measurement> measured) {
  std::vector<double> errors;
  for (const Measurement& m : measured)
    if (m.seconds > 0) errors.push_back(std::abs(rate.seconds(m.work) / m.seconds - 1));
  if (errors.empty()) return {};
  std::ranges::sort(errors);
  return {errors[errors.size() / 2], errors.back()};
}

}  // namespace ztrain::plan
