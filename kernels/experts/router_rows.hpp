#pragma once
// Computations of the router's kernels on the logits of one token, by one thread of a CPU or by the lanes of
// a warp (`Threads` of kernels/launch/threads.hpp). Included by kernel sources only.

#include <limits>

#include "kernels/experts/routing.hpp"
#include "kernels/launch/fast_exp.hpp"
#include "kernels/launch/threads.hpp"

namespace ztrain::kernels {

/// Threads that share a token.
inline constexpr int router_lanes = on_gpu ? warp_lanes : 1;

/// Calls f(i) for each of this thread's i in [0, n).
template <class Threads, class F>
KOKKOS_INLINE_FUNCTION void each_own(const Threads& threads, std::int64_t n, const F& f) {
  for (std::int64_t i = threads.rank(); i < n; i += threads.size()) f(i);
}

/// Calls f(slot, i) for each of this thread's i in [0, n), as each_own does; slots count them from 0. n is at
/// most `most`, and the size of `threads` is `lanes`.
template <int lanes, int most = most_experts, class Threads, class F>
KOKKOS_INLINE_FUNCTION void each_held(const Threads& threads, std::int64_t n, const F& f) {
#pragma unroll
  for (int slot = 0; slot < most / lanes; ++slot) {
    const int i = threads.rank() + slot * lanes;
    if (i >= n) break;
    f(slot, i);
  }
}

/// A score is numerator(logit) / total.
template <class A>
struct Scores {
  RouterScore score;
  A most = 0, total = 1;

  KOKKOS_INLINE_FUNCTION A numerator(A logit) const {
    return score == RouterScore::softmax ? fast_exp(logit - most) : 1 / (1 + fast_exp(-logit));
  }
  /// Returns the derivative of the numerator, given the numerator.
  KOKKOS_INLINE_FUNCTION A slope(A n) const { return score == RouterScore::softmax ? n : n * (1 - n); }
};

/// Returns the scores of n logits, logit(i) being the i-th, divided by their sum.
template <class A, class Threads, class Logit>
KOKKOS_INLINE_FUNCTION Scores<A> scores_of(const Threads& threads, RouterScore score, std::int64_t n,
                                           const Logit& logit) {
  Scores<A> s{score};
  if (score == RouterScore::softmax) {
    A most = -std::numeric_limits<A>::infinity();
    each_own(threads, n, [&](std::int64_t i) { most = logit(i) > most ? logit(i) : most; });
    s.most = threads.maximum(most);
  }
  A sum = 0;
  each_own(threads, n, [&](std::int64_t i) { sum += s.numerator(logit(i)); });
  s.total = threads.sum(sum) + (score == RouterScore::sigmoid ? A(1e-20) : A(0));
  return s;
}

/// Returns the scores that a token's weights are made of: those of all experts, or of the chosen ones.
template <class A, class Threads>
KOKKOS_INLINE_FUNCTION Scores<A> scores_of_weights(const Threads& threads, const RouteOptions& o,
                                                   const A* logits, std::int64_t count,
                                                   const std::int32_t* chosen) {
  if (o.normalise)
    return scores_of<A>(threads, o.score, o.top_k, [&](std::int64_t j) { return logits[chosen[j]]; });
  if (o.score == RouterScore::sigmoid) return {o.score};
  return scores_of<A>(threads, o.score, count, [&](std::int64_t e) { return logits[e]; });
}

/// A value among others, of which the largest is found first, and of equal ones that of the lowest number.
template <class A>
struct Ranked {
  A value = std::numeric_limits<A>::infinity();
  int number = -1;
};

/// Chooses the experts of a token and weighs them. lanes: the size of `threads`.
template <class A, int lanes>
struct RouteRow {
  static constexpr A highest = std::numeric_limits<A>::infinity(), lowest = std::numeric_limits<A>::lowest();

  RouteOptions o;
  std::int64_t count;
  const A *logits, *bias;
  A* weights;
  std::int32_t* experts;

  void operator()(std::int64_t token) const { by(SoleThread(), token); }

  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t token) const {
    const A* const row = logits + token * count;
    std::int32_t* const chosen = experts + token * o.top_k;
    if (o.balanced)
      each_own(threads, o.top_k,
               [&](std::int64_t j) { chosen[j] = static_cast<std::int32_t>((token * o.top_k + j) % count); });
    else
      choose(threads, row, chosen);
    // A thread reads what it wrote itself.
    const Scores<A> scores = scores_of_weights(threads, o, row, count, chosen);
    const A factor = static_cast<A>(o.scale) / scores.total;
    each_own(threads, o.top_k, [&](std::int64_t j) {
      weights[token * o.top_k + j] = factor * scores.numerator(row[chosen[j]]);
    });
  }

 private:
  /// Keys keep the order of values; none is as low as that of an expert that may not be chosen.
  static KOKKOS_INLINE_FUNCTION A key(A value) {
    return value != value ? highest : value < lowest ? lowest : value;
  }

  template <class Threads>
  KOKKOS_INLINE_FUNCTION void choose(const Threads& threads, const A* row, std::int32_t* chosen) const {
    A held[most_experts / lanes];
    if (bias != nullptr || (o.groups > 0 && o.top_two)) {
      const Scores<A> scores =
          o.score == RouterScore::sigmoid
              ? Scores<A>{o.score}
              : scores_of<A>(threads, o.score, count, [&](std::int64_t e) { return row[e]; });
      each_held<lanes>(threads, count, [&](int i, int e) {
        held[i] = key(scores.numerator(row[e]) / scores.total + (bias != nullptr ? bias[e] : A(0)));
      });
    } else {  // logits are in the order of their scores
      each_held<lanes>(threads, count, [&](int i, int e) { held[i] = key(row[e]); });
    }
    if (o.groups > 0) leave_best_groups(threads, held);
    Ranked<A> last;
    for (std::int64_t j = 0; j < o.top_k; ++j) {
      last = next(threads, held, count, last, 0, static_cast<int>(count));
      if (j % threads.size() == threads.rank()) chosen[j] = last.number;
    }
  }

  /// Returns the first of [begin, end) behind `last`, among the threads' n values.
  template <int most = most_experts, class Threads>
  KOKKOS_INLINE_FUNCTION static Ranked<A> next(const Threads& threads, const A* held, std::int64_t n,
                                               Ranked<A> last, int begin, int end) {
    Ranked<A> best{-highest, end};
    each_held<lanes, most>(threads, n, [&](int slot, int i) {
      const bool behind = held[slot] < last.value || (held[slot] == last.value && i > last.number);
      if (behind && i >= begin && i < end && held[slot] > best.value) best = {held[slot], i};
    });
    const A value = threads.maximum(best.value);
    return {value, -threads.maximum(best.value == value ? -best.number : -end)};
  }

  /// Makes experts of other groups the last of all.
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void leave_best_groups(const Threads& threads, A* held) const {
    constexpr int most = most_expert_groups;
    const int groups = static_cast<int>(o.groups), size = static_cast<int>(count / o.groups);
    A score[most / lanes];
    for (int g = 0; g < groups; ++g) {
      const Ranked<A> first = next(threads, held, count, {}, g * size, (g + 1) * size);
      A of_group = first.value;
      if (o.top_two) of_group += next(threads, held, count, first, g * size, (g + 1) * size).value;
      each_held<lanes, most>(threads, groups, [&](int slot, int i) {
        if (i == g) score[slot] = key(of_group);
      });
    }
    Ranked<A> last;
    for (std::int64_t j = 0; j < o.top_groups; ++j)
      last = next<most>(threads, score, groups, last, 0, groups);
    for (int g = 0; g < groups; ++g) {
      A own = -highest;
      each_held<lanes, most>(threads, groups, [&](int slot, int i) {
        if (i == g) own = score[slot];
      });
      const A of_group = threads.maximum(own);
      if (of_group > last.value || (of_group == last.value && g <= last.number)) continue;
      each_held<lanes>(threads, count, [&](int slot, int e) {
        if (e >= g * size && e < (g + 1) * size) held[slot] = -highest;
      });
    }
  }
};

/// With n_e / D the scores that weights are made of, and g the gradient of weights / scale:
/// dlogits_e = slope(n_e) / D (g_e - sum_j g_j n_j / D), where g is 0 for an expert that is not chosen and
/// the sum is 0 where D is no sum.
template <class A>
struct RouteGradRow {
  RouteOptions o;
  std::int64_t count;
  const A *dweights, *logits;
  const std::int32_t* experts;
  A* dlogits;

  void operator()(std::int64_t token) const { by(SoleThread(), token); }

  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t token) const {
    const A *const row = logits + token * count, *const dw = dweights + token * o.top_k;
    const std::int32_t* const chosen = experts + token * o.top_k;
    A* const out = dlogits + token * count;
    const Scores<A> scores = scores_of_weights(threads, o, row, count, chosen);
    const bool of_all = o.score == RouterScore::softmax && !o.normalise;
    A along = 0;
    if (of_all || o.normalise) {
      each_own(threads, o.top_k,
               [&](std::int64_t j) { along += dw[j] * (scores.numerator(row[chosen[j]]) / scores.total); });
      along = threads.sum(along);
    }
    const A factor = static_cast<A>(o.scale) / scores.total;
    each_own(threads, count, [&](std::int64_t e) {
      out[e] = of_all ? -factor * scores.slope(scores.numerator(row[e])) * along : A(0);
    });
    // The thread that wrote an expert's gradient before writes it again.
    for (std::int64_t j = 0; j < o.top_k; ++j)
      if (const std::int32_t e = chosen[j]; e % threads.size() == threads.rank())
        out[e] = factor * scores.slope(scores.numerator(row[e])) * (dw[j] - along);
  }
};

}  // namespace ztrain::kernels
