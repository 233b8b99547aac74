#pragma once
// Cross-entropy of a row of logits by GPU threads that share it: the logits are read twice and the gradient
// is written once. The largest logit and the sum of exponentials are found in one pass (Milakov and
// Gimelshein, "Online normalizer calculation for softmax", 2018). Included by kernel sources only.

#include <cmath>
#include <limits>

#include "kernels/head/loss_terms.hpp"
#include "kernels/launch/fast_exp.hpp"
#include "kernels/launch/row_packs.hpp"

namespace ztrain::kernels {

/// A token's logits and what becomes of them. Rows lie on multiples of 16 bytes, with room up to a multiple
/// of a pack; gradient may be the logits.
template <class T>
struct LossRow {
  acc_t<T>* logits;
  T* gradient;
  std::int64_t vocabulary;
  std::int32_t target;
  float weight;
  double scale;      ///< of the gradient
  acc_t<T> cap = 0;  ///< HeadLossShape::soft_cap
  LossTerms terms{};
};

/// Caps a row of `words` logits in place.
template <class A, class Threads>
KOKKOS_INLINE_FUNCTION void cap_logits(const Threads& threads, A* row, std::int64_t words, A cap) {
  for (std::int64_t j = threads.rank(); j < words; j += threads.size()) row[j] = softly_capped(row[j], cap);
  threads.sync();
}

/// exp(x - maximum) summed over what was added.
template <class A>
struct ExpSum {
  A maximum = std::numeric_limits<A>::lowest();
  A sum = 0;

  KOKKOS_INLINE_FUNCTION void add(const RowPack<A>& x) {
    A largest = maximum;
    for (int i = 0; i < pack; ++i) largest = x.at[i] > largest ? x.at[i] : largest;
    if (largest > maximum) {
      sum *= fast_exp(maximum - largest);
      maximum = largest;
    }
    A part = 0;
    for (int i = 0; i < pack; ++i) part += fast_exp(x.at[i] - maximum);
    sum += part;
  }
};

/// The pack at `at`; beyond the vocabulary are -infinities, whose exponential is 0.
template <class A>
KOKKOS_INLINE_FUNCTION RowPack<A> load_logits(const A* row, std::int64_t at, std::int64_t vocabulary) {
  RowPack<A> x;
  if (at < vocabulary) x = load_pack<true>(row + at, pack);
  if (at + pack > vocabulary)
    for (int i = 0; i < pack; ++i)
      if (at + i >= vocabulary) x.at[i] = -std::numeric_limits<A>::infinity();
  return x;
}

/// caps: the logits are capped already, and their gradient is that of what they were before.
template <bool caps, class T, class Threads>
KOKKOS_INLINE_FUNCTION void write_gradient(const Threads& threads, const LossRow<T>& r, acc_t<T> maximum,
                                           double sum) {
  using A = acc_t<T>;
  const bool known = r.target >= 0 && r.target < r.vocabulary;
  const double scaled = r.weight * r.scale;
  const A factor = known ? static_cast<A>(scaled / sum) : std::numeric_limits<A>::quiet_NaN();
  const std::int64_t step = threads.size() * pack;
  for (std::int64_t at = threads.rank() * pack; at < r.vocabulary; at += step) {
    const RowPack<A> x = load_logits(r.logits, at, r.vocabulary);
    RowPack<T> gradient;
    for (int i = 0; i < pack; ++i) {
      const A share = fast_exp(x.at[i] - maximum) * factor;
      A slope = 1;
      if constexpr (caps) slope = soft_cap_slope(x.at[i], r.cap);
      gradient.at[i] = static_cast<T>(slope * (at + i == r.target ? share - static_cast<A>(scaled) : share));
    }
    store_pack<true>(gradient, r.gradient + at, pack);
  }
}

/// write_gradient of a loss with terms.
template <class T, class Threads>
KOKKOS_INLINE_FUNCTION void write_gradient_of_terms(const Threads& threads, const LossRow<T>& r,
                                                    acc_t<T> maximum, double sum) {
  using A = acc_t<T>;
  const double log_sum = std::log(sum) + static_cast<double>(maximum);
  const GradientTerms g(r.terms, r.weight * r.scale, sum, log_sum, r.vocabulary);
  const bool known = r.target >= 0 && r.target < r.vocabulary;
  const A factor = known ? static_cast<A>(g.factor) : std::numeric_limits<A>::quiet_NaN();
  for (std::int64_t j = threads.rank(); j < r.vocabulary; j += threads.size()) {
    const A x = r.logits[j], share = fast_exp(x - maximum) * factor - static_cast<A>(g.uniform);
    const A slope = r.cap > 0 ? soft_cap_slope(x, r.cap) : A(1);
    r.gradient[j] = static_cast<T>(slope * (j == r.target ? share - static_cast<A>(g.one_hot) : share));
  }
}

/// Returns the mean of a row's logits, in every thread; 0 if labels are not smoothed.
template <class T, class Threads>
KOKKOS_INLINE_FUNCTION double mean_logit(const Threads& threads, const LossRow<T>& r) {
  if (r.terms.label_smoothing == 0) return 0;
  double sum = 0;
  for (std::int64_t j = threads.rank(); j < r.vocabulary; j += threads.size())
    sum += static_cast<double>(r.logits[j]);
  return threads.sum(sum) / static_cast<double>(r.vocabulary);
}

/// The token's weighted nll, in every thread.
template <class T, bool grad, class Threads>
KOKKOS_INLINE_FUNCTION double token_loss(const Threads& threads, const LossRow<T>& r) {
  using A = acc_t<T>;
  const std::int64_t first = threads.rank() * pack, step = threads.size() * pack;
  if (r.weight == 0) {
    if constexpr (grad)
      for (std::int64_t at = first; at < r.vocabulary; at += step) {
        RowPack<T> zero;
        for (int i = 0; i < pack; ++i) zero.at[i] = T(0);
        store_pack<true>(zero, r.gradient + at, pack);
      }
    return 0;
  }
  if (r.cap > 0) cap_logits(threads, r.logits, r.vocabulary, r.cap);
  const bool known = r.target >= 0 && r.target < r.vocabulary;
  const A chosen = known ? r.logits[r.target] : std::numeric_limits<A>::quiet_NaN();
  ExpSum<A> mine;
  for (std::int64_t at = first; at < r.vocabulary; at += 2 * step) {
    const RowPack<A> one = load_logits(r.logits, at, r.vocabulary),
                     two = load_logits(r.logits, at + step, r.vocabulary);
    mine.add(one);
    mine.add(two);
  }
  const A maximum = threads.maximum(mine.maximum);
  const double sum = threads.sum(static_cast<double>(mine.sum * fast_exp(mine.maximum - maximum)));
  if (!r.terms.plain()) {
    const double mean = mean_logit(threads, r), log_sum = std::log(sum) + static_cast<double>(maximum);
    if constexpr (grad) {
      threads.sync();  // a gradient may take the place of a logit that another thread adds to the mean
      write_gradient_of_terms(threads, r, maximum, sum);
    }
    return r.weight * loss_with_terms(r.terms, log_sum, static_cast<double>(chosen), mean);
  }
  if constexpr (grad)
    r.cap > 0 ? write_gradient<true>(threads, r, maximum, sum)
              : write_gradient<false>(threads, r, maximum, sum);
  return r.weight * (std::log(sum) + (static_cast<double>(maximum) - static_cast<double>(chosen)));
}

/// loss[0] += the sum of nll, loss[1] += that of weights, over `rows` tokens; overwritten where `first` is
/// set. In an order that the number of threads determines.
template <class Threads>
KOKKOS_INLINE_FUNCTION void add_losses(const Threads& threads, const double* nll, const float* weights,
                                       std::int64_t rows, bool first, double* loss) {
  double part = 0, weight = 0;
  for (std::int64_t i = threads.rank(); i < rows; i += threads.size()) {
    part += nll[i];
    weight += weights[i];
  }
  part = threads.sum(part);
  weight = threads.sum(weight);
  if (threads.rank() > 0) return;
  loss[0] = first ? part : loss[0] + part;
  loss[1] = first ? weight : loss[1] + weight;
}

}  // namespace ztrain::kernels
