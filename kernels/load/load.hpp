#pragma once
// Counts how the tokens of a step are spread over the experts of each layer.

#include "base/dtype.hpp"
#include "kernel_interface/experts_partial.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// counts[e] = the sum over rows of sums[row, e], e in [0, counts.count). sums: a row for each micro-batch. T
/// in {float, double}.
template <class T>
void count_experts(Exec& exec, Matrix<const T> sums, Vector<double> counts);

/// Writes load_max and idle of a partial, from the tokens that chose each expert [layers, experts]. idle is 0
/// unless counts_idle. workspace: 2 doubles for each layer.
void largest_load(Exec& exec, Matrix<const double> counts, bool counts_idle, double* workspace,
                  ExpertsPartial* partial);

}  // namespace ztrain::kernels
