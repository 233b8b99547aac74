#pragma once
// The search for the likeliest words of a token. A CPU inserts each word into a sorted list; threads of a GPU
// look for the largest that is below the one found last, again and again. Both find the same words. Included
// by kernel sources only.

#include <cmath>
#include <limits>

#include "kernels/distillation/distillation.hpp"
#include "kernels/head/joined_sums.hpp"
#include "kernels/launch/threads.hpp"

namespace ztrain::kernels {

/// A NaN stands nowhere.
template <class A>
struct LikeliestRow {
  JoinedSums joined;
  const A* logits;
  std::int64_t stride;
  Words own;
  Likeliest<std::int32_t, float> to;

  void operator()(std::int64_t i) const {
    const A* const row = logits + i * stride;
    std::int32_t* const words = to.words + i * to.k;
    std::int64_t found = 0;
    for (std::int64_t j = 0; j < own.count; ++j) {
      // Words come with rising numbers, so that an equal value stands behind.
      if (!(row[j] == row[j]) || (found == to.k && !(row[j] > row[words[found - 1]]))) continue;
      std::int64_t at = found < to.k ? found++ : found - 1;
      for (; at > 0 && row[j] > row[words[at - 1]]; --at) words[at] = words[at - 1];
      words[at] = static_cast<std::int32_t>(j);
    }
    const LogitSums all = joined.of(i);
    const double log_sum = all.maximum + std::log(all.sum);
    float* const logs = to.logs + i * to.k;
    for (std::int64_t w = 0; w < to.k; ++w) {
      logs[w] = w < found ? static_cast<float>(static_cast<double>(row[words[w]]) - log_sum)
                          : -std::numeric_limits<float>::infinity();
      words[w] = w < found ? static_cast<std::int32_t>(words[w] + own.first) : -1;
    }
  }
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t i) const {
    const A* const row = logits + i * stride;
    const LogitSums all = joined.of(i);
    const double log_sum = all.maximum + std::log(all.sum);
    double last = std::numeric_limits<double>::infinity(), last_word = -1;
    for (std::int64_t w = 0; w < to.k; ++w) {
      double largest = -std::numeric_limits<double>::infinity(), lowest = -1;
      for (std::int64_t j = threads.rank(); j < own.count; j += threads.size()) {
        const double value = static_cast<double>(row[j]), word = static_cast<double>(j);
        const bool below = value < last || (value == last && word > last_word);
        if (below && (lowest < 0 || value > largest)) largest = value, lowest = word;
      }
      const double most = threads.maximum(largest);
      // The thread with the lowest word wins among those that have the largest.
      const double none = -std::numeric_limits<double>::max();
      const double word = -threads.maximum(lowest >= 0 && largest == most ? -lowest : none);
      const bool is_word = word < -none;
      if (threads.rank() == 0) {
        to.words[i * to.k + w] =
            is_word ? static_cast<std::int32_t>(word) + static_cast<std::int32_t>(own.first) : -1;
        to.logs[i * to.k + w] =
            is_word ? static_cast<float>(most - log_sum) : -std::numeric_limits<float>::infinity();
      }
      if (is_word) last = most, last_word = word;
      if (!is_word) last = -std::numeric_limits<double>::infinity(), last_word = -none;
    }
  }
};

/// The lists of the members are sorted. Of a token, the first words that are left of these lists compete; of
/// equal ones the first member's, whose words have the lower numbers.
struct JoinedRow {
  Likeliest<const std::int32_t, const float> parts;
  Likeliest<std::int32_t, float> to;

  void operator()(std::int64_t i) const { by(SoleThread(), i); }
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t i) const {
    if (threads.rank() > 0) return;
    float last = std::numeric_limits<float>::infinity();
    std::int64_t last_at = -1;
    for (std::int64_t w = 0; w < to.k; ++w) {
      float best = -std::numeric_limits<float>::infinity();
      std::int64_t best_at = -1;
      for (std::int64_t m = 0; m < parts.tokens / to.tokens; ++m) {
        const std::int64_t at = first_behind(i, m, last, last_at);
        if (at >= 0 && (best_at < 0 || parts.logs[at] > best)) best = parts.logs[at], best_at = at;
      }
      to.words[i * to.k + w] = best_at < 0 ? -1 : parts.words[best_at];
      to.logs[i * to.k + w] = best;
      if (best_at >= 0) last = best, last_at = best_at;
    }
  }

 private:
  /// Returns the place of the first word of a member's list that stands behind the one taken last; -1: none.
  ZTRAIN_FUNCTION std::int64_t first_behind(std::int64_t i, std::int64_t member, float last,
                                            std::int64_t last_at) const {
    const std::int64_t begin = (member * to.tokens + i) * parts.k;
    for (std::int64_t at = begin; at < begin + parts.k && parts.words[at] >= 0; ++at)
      if (parts.logs[at] < last || (parts.logs[at] == last && at > last_at)) return at;
    return -1;
  }
};

}  // namespace ztrain::kernels
