#pragma once
// Fits rates to what was measured.

#include <span>
#include <vector>

#include "plan/rates/rates.hpp"

namespace ztrain::plan {

/// One measurement of a kernel or a collective.
struct Measurement {
  KernelWork work;
  double seconds = 0;
};

/// How far rates are from measurements: |rate / measured - 1|.
struct FitError {
  double median = 0, worst = 0;
};

/// Returns the numbers x >= 0 for which the sum of squares of rows x - wanted is least. Each row has as many
/// numbers, at most 8. Tries every set of numbers that are not 0, so the answer is exact (Lawson and Hanson,
/// "Solving Least Squares Problems", 1974, state the problem).
std::vector<double> least_squares(const std::vector<std::vector<double>>& rows,
                                  const std::vector<double>& wanted);

/// Returns the rate whose relative errors have the least sum of squares. Measurements of 0 seconds are left
/// out.
KernelRate fit_kernel(std::span<const Measurement> measured);

FitError error_of(const KernelRate& rate, std::span<const Measurement> measured);

}  // namespace ztrain::plan
