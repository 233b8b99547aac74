#pragma once
// The loops of balance.hpp, for the one thread of a CPU or for threads of a GPU (kernels/launch/threads.hpp).
// Included by kernel sources only.

#include "kernels/experts/balance.hpp"
#include "kernels/experts/router_rows.hpp"

namespace ztrain::kernels {

/// The scores of a token's experts, and log(sum_e exp(logits_e)).
template <class A>
struct TokenScores {
  Scores<A> balance, softmax;
  A log_sum;
};
template <class A, class Threads>
KOKKOS_INLINE_FUNCTION TokenScores<A> scores_of_token(const Threads& threads, RouterScore score,
                                                      const A* logits, std::int64_t count) {
  const auto logit = [&](std::int64_t e) { return logits[e]; };
  const Scores<A> softmax = scores_of<A>(threads, RouterScore::softmax, count, logit);
  const bool same = score == RouterScore::softmax;
  return {same ? softmax : scores_of<A>(threads, score, count, logit), softmax,
          softmax.most + fast_log(softmax.total)};
}

/// Computes the sums of a block of tokens.
template <class A, int lanes>
struct RouterSumsBlock {
  RouterScore score;
  std::int64_t tokens, block, count, top_k;
  const A* logits;
  const std::int32_t* experts;
  const float* weights;
  A* partials;

  void operator()(std::int64_t number) const { by(SoleThread(), number); }

  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t number) const {
    A chosen[most_experts / lanes], sums[most_experts / lanes], squares = 0, weight = 0;
    each_held<lanes>(threads, count, [&](int i, int) { chosen[i] = sums[i] = 0; });
    const std::int64_t begin = number * block, end = begin + block < tokens ? begin + block : tokens;
    for (std::int64_t token = begin; token < end; ++token) {
      const A* const row = logits + token * count;
      const TokenScores<A> scores = scores_of_token(threads, score, row, count);
      each_held<lanes>(threads, count, [&](int i, int e) {
        sums[i] += scores.balance.numerator(row[e]) / scores.balance.total;
      });
      for (std::int64_t j = 0; j < top_k; ++j) {
        const std::int32_t at = experts[token * top_k + j];
        if constexpr (lanes == 1)
          chosen[at] += 1;
        else
          each_held<lanes>(threads, count, [&](int i, int e) { chosen[i] += e == at ? A(1) : A(0); });
      }
      squares += scores.log_sum * scores.log_sum;
      weight += static_cast<A>(weights[token]);
    }
    A* const to = partials + number * (2 * count + 3);
    each_held<lanes>(threads, count, [&](int i, int e) {
      to[e] = chosen[i];
      to[count + e] = sums[i];
    });
    if (threads.rank() > 0) return;
    to[2 * count] = static_cast<A>(end - begin);
    to[2 * count + 1] = squares;
    to[2 * count + 2] = weight;
  }
};

/// Computes dlogits of a token. The gradient of logsumexp^2 passes through the softmax.
template <class A>
struct RouterSumsGradRow {
  RouterScore score;
  std::int64_t count;
  const A *dsums, *logits;
  A* dlogits;

  void operator()(std::int64_t token) const { by(SoleThread(), token); }

  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t token) const {
    const A *const row = logits + token * count, *const ds = dsums + count;
    const auto [s, softmax, log_sum] = scores_of_token(threads, score, row, count);
    A along = 0;
    each_own(threads, count, [&](std::int64_t e) { along += ds[e] * (s.numerator(row[e]) / s.total); });
    along = threads.sum(along);
    const A of_squares = 2 * log_sum * dsums[2 * count + 1] / softmax.total;
    each_own(threads, count, [&](std::int64_t e) {
      dlogits[token * count + e] =
          s.slope(s.numerator(row[e])) / s.total * (ds[e] - along) + of_squares * softmax.numerator(row[e]);
    });
  }
};

/// Computes the two losses and, unless dsums is null, the gradient of the sums.
template <class A>
struct BalanceTeam {
  BalanceCoefficients c;
  std::int64_t count;
  const A *sums, *all;
  const StepScalars* scalars;
  double* losses;
  A* dsums;

  void operator()(std::int64_t) const { by(SoleThread(), 0); }

  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t) const {
    const A *const chosen = all, *const scores = sums + count;
    const double tokens = static_cast<double>(all[2 * count]);
    const double weight = static_cast<double>(all[2 * count + 2]) / static_cast<double>(c.layers);
    const double balance = c.balance * weight * static_cast<double>(count) / (tokens * tokens),
                 z = c.z * weight / tokens;
    double even = 0;
    each_own(threads, count, [&](std::int64_t e) {
      even += static_cast<double>(chosen[e]) * static_cast<double>(scores[e]);
    });
    even = threads.sum(even);
    if (threads.rank() == 0) {
      losses[0] = balance * even;
      losses[1] = z * static_cast<double>(sums[2 * count + 1]);
    }
    if (dsums == nullptr) return;
    const double factor = scalars->loss_scale;
    each_own(threads, 2 * count + 3, [&](std::int64_t i) {
      double value = 0;
      if (i >= count && i < 2 * count) value = balance * static_cast<double>(chosen[i - count]);
      if (i == 2 * count + 1) value = z;
      dsums[i] = static_cast<A>(factor * value);
    });
  }
};

}  // namespace ztrain::kernels
