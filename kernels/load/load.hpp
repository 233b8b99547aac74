#pragma once
// Counts how the tokens of a step are spread over the experts of each layer, and moves the biases of the
// choice by these counts.

#include "kernel_interface/experts_partial.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// Computes counts[e], the sum over rows of sums[row, e], e in [0, counts.count). sums: a row for each
/// micro-batch. T in {float, double}.
template <class T>
void count_experts(Exec& exec, Matrix<const T> sums, Vector<double> counts);

/// Writes load_max and idle of a partial, from the tokens that chose each expert [layers, experts]. idle is 0
/// unless counts_idle. workspace: 2 doubles for each layer.
void largest_load(Exec& exec, Matrix<const double> counts, bool counts_idle, double* workspace,
                  ExpertsPartial* partial);

/// Biases of the choice. The biases of layer l begin at data + l * stride. T in {float, double}.
template <class T>
struct ChoiceBiases {
  T* data;
  std::int64_t stride;
};

/// Adds speed to the bias of each expert whose count is below the mean of its layer, and subtracts it if the
/// count is above. Changes nothing if scalars->found_inf. counts: [layers, experts], whole numbers.
template <class T>
void move_biases(Exec& exec, Matrix<const double> counts, const StepScalars* scalars, double speed,
                 ChoiceBiases<T> biases);

}  // namespace ztrain::kernels
