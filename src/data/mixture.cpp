#include "data/mixture.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace ztrain::data {
namespace {

constexpr std::int64_t longest_period = 100000;
constexpr double tolerance = 1e-9;

/// Returns the weights in units of a period of this many samples; empty if they are not whole numbers.
std::vector<std::int64_t> whole_shares(const std::vector<double>& weights, double sum, std::int64_t period) {
  std::vector<std::int64_t> shares;
  for (const double weight : weights) {
    const double exact = weight / sum * static_cast<double>(period), rounded = std::round(exact);
    if (rounded < 1 || std::abs(exact - rounded) > tolerance * static_cast<double>(period)) return {};
    shares.push_back(static_cast<std::int64_t>(rounded));
  }
  return shares;
}

/// Returns whole numbers near the ratio, for a message.
std::vector<std::int64_t> nearby(const std::vector<double>& weights, double sum) {
  std::vector<std::int64_t> shares;
  for (const double weight : weights)
    shares.push_back(std::max<std::int64_t>(1, std::llround(weight / sum * 1000)));
  return shares;
}

}  // namespace

std::vector<std::int64_t> shares_of(const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (auto period = static_cast<std::int64_t>(weights.size()); period <= longest_period; ++period) {
    auto shares = whole_shares(weights, sum, period);
    const bool exact = std::accumulate(shares.begin(), shares.end(), std::int64_t{0}) == period;
    if (!shares.empty() && exact) return shares;
  }
  fail(
      "data.weights = [{}] cannot be kept exactly over {} sequences; give whole numbers or fewer digits, "
      "such as [{}]",
      fmt::join(weights, ", "), longest_period, fmt::join(nearby(weights, sum), ", "));
}

Mixture::Mixture(std::vector<std::int64_t> shares, std::int64_t seed) : shares_(std::move(shares)) {
  const std::int64_t period = std::accumulate(shares_.begin(), shares_.end(), std::int64_t{0});
  std::vector<std::int64_t> gained(shares_.size(), 0);
  for (std::int64_t i = 0; i < period; ++i) {
    for (std::size_t s = 0; s < shares_.size(); ++s) gained[s] += shares_[s];
    const auto most = std::max_element(gained.begin(), gained.end());
    *most -= period;
    period_.push_back({static_cast<std::uint32_t>(most - gained.begin()), 0});
  }
  const std::uint64_t start = hash_text("mixture", static_cast<std::uint64_t>(seed));
  std::rotate(period_.begin(), period_.begin() + static_cast<std::int64_t>(start % period_.size()),
              period_.end());
  std::vector<std::int32_t> drawn(shares_.size(), 0);
  for (Turn& turn : period_) turn.before = drawn[turn.source]++;
}

Mixture::Draw Mixture::operator()(std::int64_t sample) const {
  const auto period = static_cast<std::int64_t>(period_.size());
  const Turn turn = period_[static_cast<std::size_t>(sample % period)];
  return {turn.source, sample / period * shares_[turn.source] + turn.before};
}

std::int64_t Mixture::drawn(std::size_t source, std::int64_t samples) const {
  const auto period = static_cast<std::int64_t>(period_.size());
  const std::int64_t begun = std::count_if(period_.begin(), period_.begin() + samples % period,
                                           [&](const Turn& turn) { return turn.source == source; });
  return samples / period * shares_[source] + begun;
}

}  // namespace ztrain::data
