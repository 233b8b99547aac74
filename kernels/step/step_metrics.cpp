#include "kernels/step/step_metrics.hpp"

#include <cmath>

#include "kernels/launch/rows.hpp"

namespace ztrain::kernels {
namespace {

constexpr std::int64_t terms_per_launch = 24;  // the pointers travel as kernel arguments: see for_rows

template <class T>
struct TermBatch {
  const T* values[terms_per_launch] = {};
  std::int64_t count = 0;
};

void add_batch(Exec& exec, const TermBatch<double>& batch, bool first, double* out) {
  for_rows(
      exec, 1, KOKKOS_LAMBDA(const std::int64_t) {
        double sum = first ? 0 : *out;
        for (std::int64_t i = 0; i < batch.count; ++i) sum += *batch.values[i];
        *out = sum;
      });
}

/// The limbs are shared among the lanes; a batch has too few terms for a carry between them.
void add_batch(Exec& exec, const TermBatch<ExactSum>& batch, bool first, ExactSum* out) {
  for_wide_rows(
      exec, 1, ExactSum::limbs, KOKKOS_LAMBDA(const Lanes& lanes, const std::int64_t) {
        lanes.items(ExactSum::limbs, [&](const int limb) {
          std::int64_t sum = first ? 0 : out->limb[limb];
          for (std::int64_t i = 0; i < batch.count; ++i) sum += batch.values[i]->limb[limb];
          out->limb[limb] = sum;
        });
        lanes.sync();
        lanes.once([&] {
          std::int64_t not_finite = first ? 0 : out->not_finite;
          for (std::int64_t i = 0; i < batch.count; ++i) not_finite |= batch.values[i]->not_finite;
          out->not_finite = not_finite;
          out->carry();
        });
      });
}

/// Launches as many batches as the terms of the list need, at least one.
template <class T>
void add_in_batches(Exec& exec, std::span<const T* const> terms, T* out) {
  bool first = true;
  do {
    TermBatch<T> batch;
    for (; batch.count < terms_per_launch && !terms.empty(); terms = terms.subspan(1))
      batch.values[batch.count++] = terms.front();
    add_batch(exec, batch, first, out);
    first = false;
  } while (!terms.empty());
}

KOKKOS_INLINE_FUNCTION void write_scalars(double loss_sum, double tokens, double squares, StepScalars& s) {
  const bool empty = tokens == 0;
  const double norm = empty ? 0 : std::sqrt(squares) / tokens / s.loss_scale;
  const double bound = s.max_norm / (norm + 1e-6);
  const double clip = s.max_norm > 0 && bound < 1 ? bound : 1;
  s.valid_tokens = tokens;
  s.loss = empty ? 0 : loss_sum / tokens;
  s.gradient_norm = norm;
  s.gradient_multiplier = empty ? 0 : clip / tokens / s.loss_scale;
  s.found_inf = std::isfinite(norm) && std::isfinite(squares) ? 0 : 1;
}

}  // namespace

void sum_terms(Exec& exec, std::span<const double* const> terms, double* out) {
  add_in_batches(exec, terms, out);
}

void sum_exact(Exec& exec, std::span<const ExactSum* const> terms, ExactSum* out) {
  add_in_batches(exec, terms, out);
}

void finish_step(Exec& exec, Vector<const StepPartial> partials, const double* overflows,
                 StepScalars* scalars) {
  for_rows(
      exec, 1, KOKKOS_LAMBDA(const std::int64_t) {
        StepPartial sum;
        for (std::int64_t rank = 0; rank < partials.count; ++rank) {
          const StepPartial& partial = partials.data[rank];
          sum.loss_sum += partial.loss_sum;
          sum.weight_sum += partial.weight_sum;
          sum.squares.add(partial.squares);
        }
        write_scalars(sum.loss_sum, sum.weight_sum, sum.squares.value(), *scalars);
        if (overflows != nullptr && *overflows > 0) scalars->found_inf = StepScalars::rows_left_out;
      });
}

}  // namespace ztrain::kernels
