#include "kernels/rope/frequencies.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace ztrain::kernels {
namespace {

constexpr double turn = 2 * std::numbers::pi;

double plain(double theta, std::int64_t i, std::int64_t width) {
  return std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(width));
}

void fill(RopeFrequencies& f, double theta) {
  for (std::int64_t i = 0; i < f.count; ++i) f.at[i] = plain(theta, i, 2 * f.count);
}

double stretch(const RopeScaling& rope) {
  if (rope.factor > 0) return rope.factor;
  REQUIRE(rope.max_position > 0 && rope.original_max_position > 0,
          "rope_table: scaling '{}' needs a factor, or both max_position and original_max_position",
          rope.scaling);
  return static_cast<double>(rope.max_position) / static_cast<double>(rope.original_max_position);
}

void unscaled(const RopeScaling& rope, RopeFrequencies& f) {
  fill(f, rope.theta);
}

void linear(const RopeScaling& rope, RopeFrequencies& f) {
  fill(f, rope.theta);
  for (std::int64_t i = 0; i < f.count; ++i) f.at[i] /= rope.factor;
}

/// The base grows with the length, so that the slowest frequency is interpolated and the fastest is kept.
void dynamic(const RopeScaling& rope, RopeFrequencies& f) {
  REQUIRE(rope.max_position > 0 && f.count > 1,
          "rope_table: scaling 'dynamic' needs max_position and more than one frequency");
  const auto known = static_cast<double>(rope.max_position), width = static_cast<double>(2 * f.count);
  const double length = std::max(known, static_cast<double>(rope.length));
  fill(f, rope.theta * std::pow(rope.factor * length / known - (rope.factor - 1), width / (width - 2)));
}

double yarn_amplitude(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

/// Frequencies that turn more than beta_fast times in the original context are kept, those that turn less
/// than beta_slow times are interpolated, with a ramp over the index between.
void yarn(const RopeScaling& rope, RopeFrequencies& f) {
  const double factor = stretch(rope), width = static_cast<double>(2 * f.count);
  const auto index_of = [&](double turns) {
    const double context = static_cast<double>(rope.original_max_position);
    return width * std::log(context / (turns * turn)) / (2 * std::log(rope.theta));
  };
  double low = index_of(rope.beta_fast), high = index_of(rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, width - 1);
  if (low == high) high += 0.001;
  fill(f, rope.theta);
  for (std::int64_t i = 0; i < f.count; ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    f.at[i] = f.at[i] / factor * ramp + f.at[i] * (1 - ramp);
  }
  f.amplitude = rope.attention_factor > 0 ? rope.attention_factor
                : rope.mscale != 0 && rope.mscale_all_dim != 0
                    ? yarn_amplitude(factor, rope.mscale) / yarn_amplitude(factor, rope.mscale_all_dim)
                    : yarn_amplitude(factor, 1);
}

void longrope(const RopeScaling& rope, RopeFrequencies& f) {
  const std::vector<double>& factors =
      rope.length > rope.original_max_position ? rope.long_factors : rope.short_factors;
  REQUIRE(std::ssize(factors) == f.count, "rope_table: scaling 'longrope' has {} factors for {} frequencies",
          factors.size(), f.count);
  fill(f, rope.theta);
  for (std::int64_t i = 0; i < f.count; ++i) f.at[i] /= factors[static_cast<std::size_t>(i)];
  const double factor = stretch(rope);
  if (rope.attention_factor > 0)
    f.amplitude = rope.attention_factor;
  else if (factor > 1)
    f.amplitude = std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(rope.original_max_position)));
}

void llama3(const RopeScaling& rope, RopeFrequencies& f) {
  fill(f, rope.theta);
  for (std::int64_t i = 0; i < f.count; ++i) {
    const double here = f.at[i], wavelength = turn / here;
    const double turns = static_cast<double>(rope.original_max_position) / wavelength;
    if (turns > rope.high_freq_factor) continue;
    const double smooth = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    f.at[i] =
        turns < rope.low_freq_factor ? here / rope.factor : (1 - smooth) * here / rope.factor + smooth * here;
  }
}

struct Scaling {
  std::string_view name;
  void (*apply)(const RopeScaling&, RopeFrequencies&);
};
constexpr Scaling scalings[] = {
    {"default", unscaled}, {"none", unscaled},     {"linear", linear}, {"dynamic", dynamic},
    {"yarn", yarn},        {"longrope", longrope}, {"llama3", llama3},
};

}  // namespace

RopeFrequencies rope_frequencies(const RopeScaling& rope, std::int64_t width) {
  REQUIRE(width > 0 && width % 2 == 0 && width <= 2 * RopeFrequencies::most,
          "rope_table: {} elements of a head are turned; the number must be even and at most {}", width,
          2 * RopeFrequencies::most);
  const auto* const scaling = std::ranges::find(scalings, rope.scaling, &Scaling::name);
  REQUIRE(scaling != std::end(scalings), "rope_table: scaling '{}' is not known", rope.scaling);
  RopeFrequencies f;
  f.count = width / 2;
  scaling->apply(rope, f);
  return f;
}

}  // namespace ztrain::kernels
