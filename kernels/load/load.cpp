#include "kernels/load/load.hpp"

#include "kernels/launch/instances.hpp"
#include "kernels/launch/rows.hpp"

namespace ztrain::kernels {

template <class T>
void count_experts(Exec& exec, Matrix<const T> sums, Vector<double> counts) {
  for_rows(
      exec, counts.count, KOKKOS_LAMBDA(const std::int64_t e) {
        double count = 0;
        for (std::int64_t row = 0; row < sums.rows; ++row)
          count += static_cast<double>(sums.data[row * sums.cols + e]);
        counts.data[e] = count;
      });
}

void largest_load(Exec& exec, Matrix<const double> counts, bool counts_idle, double* workspace,
                  ExpertsPartial* partial) {
  for_rows(
      exec, counts.rows, KOKKOS_LAMBDA(const std::int64_t layer) {
        const double* const of_layer = counts.data + layer * counts.cols;
        double sum = 0, most = 0, idle = 0;
        for (std::int64_t e = 0; e < counts.cols; ++e) {
          sum += of_layer[e];
          most = of_layer[e] > most ? of_layer[e] : most;
          idle += of_layer[e] == 0 ? 1 : 0;
        }
        workspace[2 * layer] = sum > 0 ? most * static_cast<double>(counts.cols) / sum : 0;
        workspace[2 * layer + 1] = idle;
      });
  for_rows(
      exec, 1, KOKKOS_LAMBDA(const std::int64_t) {
        double most = 0, idle = 0;
        for (std::int64_t layer = 0; layer < counts.rows; ++layer) {
          most = workspace[2 * layer] > most ? workspace[2 * layer] : most;
          idle += workspace[2 * layer + 1];
        }
        partial->load_max = most;
        partial->idle = counts_idle ? idle : 0;
      });
}

template <class T>
void move_biases(Exec& exec, Matrix<const double> counts, const StepScalars* scalars, double speed,
                 ChoiceBiases<T> biases) {
  for_rows(
      exec, counts.rows * counts.cols, KOKKOS_LAMBDA(const std::int64_t i) {
        if (scalars->found_inf != 0) return;
        const std::int64_t layer = i / counts.cols, expert = i % counts.cols;
        const double* const of_layer = counts.data + layer * counts.cols;
        double sum = 0;
        for (std::int64_t e = 0; e < counts.cols; ++e) sum += of_layer[e];
        // A mean might be rounded. These are whole numbers, whose comparison is exact.
        const double over = of_layer[expert] * static_cast<double>(counts.cols) - sum;
        T& bias = biases.data[layer * biases.stride + expert];
        if (over < 0) bias += static_cast<T>(speed);
        if (over > 0) bias -= static_cast<T>(speed);
      });
}

ZTRAIN_INSTANCE(count_experts, float)
ZTRAIN_INSTANCE(count_experts, double)
ZTRAIN_INSTANCE(move_biases, float)
ZTRAIN_INSTANCE(move_biases, double)

}  // namespace ztrain::kernels
