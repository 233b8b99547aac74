#include "kernels/step_metrics.hpp"

#include <array>
#include <cmath>

#include "base/error.hpp"
#include "kernels/rows.hpp"

namespace ztrain::kernels {
namespace {

constexpr std::size_t terms_per_launch = 64;  // the pointers travel as kernel arguments

struct TermBatch {
  std::array<const double*, terms_per_launch> values{};
  std::int64_t count = 0;
};

void add_batch(Exec& exec, const TermBatch& batch, bool first, double* out) {
  for_rows(
      exec, 1, KOKKOS_LAMBDA(const std::int64_t) {
        double sum = first ? 0.0 : *out;
        for (std::int64_t i = 0; i < batch.count; ++i) sum += *batch.values[static_cast<std::size_t>(i)];
        *out = sum;
      });
}

KOKKOS_INLINE_FUNCTION void write_scalars(double loss_sum, double tokens, double squares, StepScalars& s) {
  const bool empty = tokens == 0;
  const double norm = empty ? 0 : std::sqrt(squares) / tokens;
  const double bound = s.max_norm / (norm + 1e-6);
  const double clip = s.max_norm > 0 && bound < 1 ? bound : 1;
  s.valid_tokens = tokens;
  s.loss = empty ? 0 : loss_sum / tokens;
  s.gradient_norm = norm;
  s.gradient_multiplier = empty ? 0 : clip / tokens;
  s.found_inf = std::isfinite(norm) && std::isfinite(squares) ? 0 : 1;
}

}  // namespace

void sum_terms(Exec& exec, std::span<const Term> terms, double* out) {
  TermBatch batch;
  bool first = true;
  for (const Term& term : terms) {
    if (!term.counted) continue;
    batch.values[static_cast<std::size_t>(batch.count++)] = term.value;
    if (batch.count == static_cast<std::int64_t>(terms_per_launch)) {
      add_batch(exec, batch, first, out);
      first = false;
      batch.count = 0;
    }
  }
  if (first || batch.count > 0) add_batch(exec, batch, first, out);
}

void sum_in_order(Exec& exec, Vector<const double> terms, bool add, double* out) {
  for_rows(
      exec, 1, KOKKOS_LAMBDA(const std::int64_t) {
        double sum = add ? *out : 0.0;
        for (std::int64_t i = 0; i < terms.count; ++i) sum += terms.data[i];
        *out = sum;
      });
}

void finish_step(Exec& exec, Matrix<const double> partials, StepScalars* scalars) {
  REQUIRE(partials.cols == 3, "finish_step: the partial sums have {} columns; expected 3", partials.cols);
  for_rows(
      exec, 1, KOKKOS_LAMBDA(const std::int64_t) {
        double sums[3] = {0, 0, 0};
        for (std::int64_t rank = 0; rank < partials.rows; ++rank) {
          for (int column = 0; column < 3; ++column) sums[column] += partials.data[rank * 3 + column];
        }
        write_scalars(sums[0], sums[1], sums[2], *scalars);
      });
}

}  // namespace ztrain::kernels
