#pragma once
// Cross-entropy of a row of logits by one thread of a CPU, in loops that vectorise. Included by kernel
// sources only.

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/head/head_loss_threads.hpp"
#include "kernels/launch/fast_exp.hpp"
#include "kernels/launch/threads.hpp"

namespace ztrain::kernels {

/// Partial maxima and sums per row, so that the loops vectorise and give the same bits for any vector width.
inline constexpr int loss_lanes = 32;
inline constexpr std::int64_t loss_sum_block = 2048;

template <class A>
A row_maximum(const A* __restrict row, std::int64_t stride) {
  A lane[loss_lanes];
  for (int u = 0; u < loss_lanes; ++u) lane[u] = row[u];
  for (std::int64_t j = 0; j < stride; j += loss_lanes)
    for (int u = 0; u < loss_lanes; ++u) lane[u] = row[j + u] > lane[u] ? row[j + u] : lane[u];
  return *std::max_element(lane, lane + loss_lanes);
}

/// sum exp(row - maximum); the terms replace the row when keep.
template <class A, bool keep>
double row_sum(A* __restrict row, std::int64_t stride, A maximum) {
  double sum = 0;
  for (std::int64_t begin = 0; begin < stride; begin += loss_sum_block) {
    A lane[loss_lanes] = {};
    for (std::int64_t j = begin; j < std::min(stride, begin + loss_sum_block); j += loss_lanes)
      for (int u = 0; u < loss_lanes; ++u) {
        const A e = fast_exp(row[j + u] - maximum);
        if constexpr (keep) row[j + u] = e;
        lane[u] += e;
      }
    for (int u = 0; u < loss_lanes; ++u) sum += lane[u];
  }
  return sum;
}

/// Caps a row of logits in place.
template <class A>
void cap_logits(A* row, std::int64_t words, A cap) {
  for (std::int64_t j = 0; j < words; ++j) row[j] = softly_capped(row[j], cap);
}

/// Writes a row's gradient: gradient(x, one_hot) for each x of the row. one_hot is `scaled` for the target
/// and 0 for the others. In place when the types agree: a loop over one pointer vectorises, over two equal
/// ones it does not.
template <class T, class Gradient>
void write_gradient(const LossRow<T>& r, acc_t<T> scaled, const Gradient& gradient) {
  using A = acc_t<T>;
  A* const row = r.logits;
  const bool known = r.target >= 0 && r.target < r.vocabulary;
  const A at_target = known ? gradient(row[r.target], scaled) : A(0);
  if constexpr (std::is_same_v<A, T>) {
    for (std::int64_t j = 0; j < r.vocabulary; ++j) row[j] = gradient(row[j], A(0));
  } else {
    for (std::int64_t j = 0; j < r.vocabulary; ++j) r.gradient[j] = static_cast<T>(gradient(row[j], A(0)));
  }
  if (known) r.gradient[r.target] = static_cast<T>(at_target);
}

/// write_gradient of a loss with terms. Exponentials have replaced the logits unless these are capped.
template <class T>
void write_gradient_of_terms(const LossRow<T>& r, bool known, acc_t<T> maximum, double sum) {
  using A = acc_t<T>;
  const double log_sum = std::log(sum) + static_cast<double>(maximum);
  const GradientTerms g(r.terms, r.weight * r.scale, sum, log_sum, r.vocabulary);
  const A factor = known ? static_cast<A>(g.factor) : std::numeric_limits<A>::quiet_NaN(),
          uniform = static_cast<A>(g.uniform), cap = r.cap;
  if (cap > 0)
    write_gradient(r, static_cast<A>(g.one_hot), [=](A x, A one_hot) {
      return (fast_exp(x - maximum) * factor - uniform - one_hot) * soft_cap_slope(x, cap);
    });
  else
    write_gradient(r, static_cast<A>(g.one_hot),
                   [=](A x, A one_hot) { return x * factor - uniform - one_hot; });
}

/// One token's weighted nll, and when grad its logits' gradient scale * weight * (softmax -
/// one_hot).
template <class T, bool grad>
double token_loss(const LossRow<T>& r, std::int64_t stride) {
  using A = acc_t<T>;
  if (r.weight == 0) {
    if constexpr (grad) std::fill_n(r.gradient, r.vocabulary, T(0));
    return 0;
  }
  A* const row = r.logits;
  const A cap = r.cap;
  if (cap > 0) cap_logits(row, r.vocabulary, cap);
  std::fill_n(row + r.vocabulary, stride - r.vocabulary, std::numeric_limits<A>::lowest());
  const bool known = r.target >= 0 && r.target < r.vocabulary;
  const A maximum = row_maximum(row, stride);
  const A chosen = known ? row[r.target] : std::numeric_limits<A>::quiet_NaN();
  const double mean = mean_logit(SoleThread(), r);
  // The slope of the cap follows from the logits, so that the exponentials do not replace them.
  const double sum =
      cap > 0 ? row_sum<A, false>(row, stride, maximum) : row_sum<A, grad>(row, stride, maximum);
  if (!r.terms.plain()) {
    const double log_sum = std::log(sum) + static_cast<double>(maximum);
    if constexpr (grad) write_gradient_of_terms(r, known, maximum, sum);
    return r.weight * loss_with_terms(r.terms, log_sum, static_cast<double>(chosen), mean);
  }
  if constexpr (grad) {
    const double scaled = r.weight * r.scale;
    const A factor = known ? static_cast<A>(scaled / sum) : chosen;
    if (cap > 0)
      write_gradient(r, static_cast<A>(scaled), [=](A x, A one_hot) {
        return (fast_exp(x - maximum) * factor - one_hot) * soft_cap_slope(x, cap);
      });
    else
      write_gradient(r, static_cast<A>(scaled), [=](A x, A one_hot) { return x * factor - one_hot; });
  }
  return r.weight * (std::log(sum) + (static_cast<double>(maximum) - static_cast<double>(chosen)));
}

/// Adds a chunk's losses and weights to the sums. A CPU adds them in the order of tokens.
struct AddLosses {
  const double* nll;
  const float* weights;
  std::int64_t rows;
  bool first;
  double* loss;

  void operator()(std::int64_t) const {
    double part = first ? 0 : loss[0], weight = first ? 0 : loss[1];
    for (std::int64_t i = 0; i < rows; ++i) {
      part += nll[i];
      weight += weights[i];
    }
    loss[0] = part;
    loss[1] = weight;
  }
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t) const {
    add_losses(threads, nll, weights, rows, first, loss);
  }
};

inline void add_losses(Exec& exec, const AddLosses& sum) {
  for_shared_rows(exec, 1, 256, sum);
}

}  // namespace ztrain::kernels
