#pragma once
// Weights that are kept as codes of 4 or 8 bits and are computed with in another type (Dettmers, Pagnoni,
// Holtzman and Zettlemoyer, "QLoRA: Efficient Finetuning of Quantized LLMs", 2023).
//
// 4 bits: each block of 64 elements, in the order in which a parameter lies in memory, has a scale, its
// largest magnitude. A code names one of 16 levels of [-1, 1], the one nearest to element / scale. Nested
// scales (double quantisation) are themselves codes of 8 bits: the mean of the parameter's scales is taken
// off, and each group of 256 scales has a scale of its own.
// 8 bits: each row has a scale, and a code is element * 127 / scale, rounded to an integer.
//
// Codes lie in quanta of 256 elements, each followed by the scales of its blocks, so that every cut between
// quanta cuts codes and scales alike. A parameter's statistics hold what belongs to more than a quantum:
// of nested scales one scale for each group and then the mean, of 8 bits one scale for each row.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/shape.hpp"
#include "base/weight_form.hpp"
#include "kernel_interface/exact_sum.hpp"

namespace ztrain {

/// The levels of a code of 4 bits.
struct FourBits {
  std::array<float, 16> levels;         ///< by code
  std::array<std::uint8_t, 16> rising;  ///< codes in the order of their levels
  /// A number at or below thresholds[i] and above the one before has code rising[i].
  constexpr std::array<float, 15> thresholds() const {
    std::array<float, 15> between{};
    for (std::size_t i = 0; i < between.size(); ++i)
      between[i] = (levels[rising[i]] + levels[rising[i + 1]]) / 2;
    return between;
  }
};

/// Quantiles of the normal distribution, as the paper gives them.
inline constexpr FourBits nf4_levels{
    {-1.0F, -0.6961928009986877F, -0.5250730514526367F, -0.39491748809814453F, -0.28444138169288635F,
     -0.18477343022823334F, -0.09105003625154495F, 0.0F, 0.07958029955625534F, 0.16093020141124725F,
     0.24611230194568634F, 0.33791524171829224F, 0.44070982933044434F, 0.5626170039176941F,
     0.7229568362236023F, 1.0F},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};

/// Floats of a sign, two bits of exponent and one of mantissa, of which the largest is 1. Code 8 is 0 too.
inline constexpr FourBits fp4_levels{
    {0.0F, 0.0625F / 12, 8.0F / 12, 1.0F, 4.0F / 12, 6.0F / 12, 2.0F / 12, 3.0F / 12, 0.0F, -0.0625F / 12,
     -8.0F / 12, -1.0F, -4.0F / 12, -6.0F / 12, -2.0F / 12, -3.0F / 12},
    {11, 10, 13, 12, 15, 14, 9, 0, 8, 1, 6, 7, 4, 5, 2, 3}};

constexpr const FourBits& levels_of(WeightCode code) {
  return code == WeightCode::fp4 ? fp4_levels : nf4_levels;
}

/// The 256 levels of nested scales, rising: the dynamic map of Dettmers et al., "8-bit Optimizers via
/// Block-wise Quantization" (2022), with the bits that bitsandbytes' table has. Decade i of 7 has 2^i centres
/// of equal parts of [0.1, 1], times 10^(i - 6), with both signs; 0 and 1 are added.
inline constexpr std::array<float, 256> scale_levels = [] {
  std::array<float, 256> levels{};
  constexpr std::array<float, 7> powers{1e-6F, 1e-5F, 1e-4F, 1e-3F, 1e-2F, 1e-1F, 1.0F};
  std::size_t positive = 128;
  for (std::size_t decade = 0; decade < powers.size(); ++decade) {
    const int parts = 1 << decade;
    const float step = (1.0F - 0.1F) / static_cast<float>(parts);
    // Each bound is rounded once, and counted from the end that is nearer.
    const auto bound = [&](int j) {
      return static_cast<float>(j < (parts + 1) / 2 ? double{0.1F} + double{step} * j
                                                    : 1.0 - double{step} * (parts - j));
    };
    for (int j = 0; j < parts; ++j, ++positive) {
      levels[positive] = powers[decade] * ((bound(j) + bound(j + 1)) / 2);
      levels[254 - positive] = -levels[positive];
    }
  }
  levels[255] = 1;
  return levels;
}();

inline constexpr float int8_level = 7.874015718698502e-3F;  ///< 1 / 127

// The functions below run on the host, while weights are read.

/// Returns the largest magnitude of n numbers.
inline float largest_magnitude(const float* x, std::int64_t n) {
  float largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(x[i]));
  return largest;
}

/// Divides by a scale as bitsandbytes does: whole blocks are multiplied by its reciprocal.
class ByScale {
 public:
  ByScale(float scale, bool whole) : scale_(std::max(scale, least)), factor_(1 / scale_), whole_(whole) {}
  float operator()(float x) const { return std::clamp(whole_ ? x * factor_ : x / scale_, -1.0F, 1.0F); }
  /// The scale that is kept: that of a short block is never 0.
  static float kept(float scale, bool whole) { return whole ? scale : std::max(scale, least); }

 private:
  static constexpr float least = 1e-38F;
  float scale_, factor_;
  bool whole_;
};

/// Writes the codes of a block of n elements, at most scale_block, two to a byte with the first in the upper
/// half.
inline void encode_block(WeightCode code, const float* x, std::int64_t n, float scale, std::byte* to) {
  const FourBits& levels = levels_of(code);
  const ByScale scaled(scale, n == scale_block);
  std::array<float, scale_block> values{};
  std::array<std::int32_t, scale_block> below{};  // thresholds below each value
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) values[i] = scaled(x[i]);
  for (const float threshold : levels.thresholds())
    for (std::size_t i = 0; i < values.size(); ++i) below[i] += values[i] > threshold ? 1 : 0;
  const auto code_of = [&](std::size_t i) { return levels.rising[static_cast<std::size_t>(below[i])]; };
  for (std::size_t i = 0; i < static_cast<std::size_t>(ceil_div(n, std::int64_t{2})); ++i)
    to[i] = static_cast<std::byte>(code_of(2 * i) << 4 | code_of(2 * i + 1));
}

/// Returns the code of a scale from which the mean was taken, in a group with this largest magnitude. whole:
/// the group has nested_block scales.
inline std::uint8_t encode_scale(float centred, float largest, bool whole) {
  const float v = ByScale(largest, whole)(centred);
  std::size_t low = 0, high = 255;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (v > (scale_levels[middle] + scale_levels[middle + 1]) / 2)
      low = middle + 1;
    else
      high = middle;
  }
  return static_cast<std::uint8_t>(low);
}

/// Returns the code of an element of a row with this largest magnitude.
inline std::int8_t encode_int8(float x, float largest) {
  return largest > 0 ? static_cast<std::int8_t>(std::nearbyint(x * (1 / largest * 127))) : std::int8_t{0};
}
inline float decode_int8(std::int8_t code, float largest) {
  return static_cast<float>(code) * largest * int8_level;
}

/// Returns a nested scale, whose product and sum are rounded one after the other.
inline float nested_scale(float level, float largest, float mean) {
  const volatile float product = level * largest;
  return product + mean;
}

/// Replaces n elements by what their codes for `scale` say, times the scale that is kept.
inline void decode_block(WeightCode code, float* x, std::int64_t n, float scale, float kept) {
  std::array<std::byte, scale_block / 2> codes{};
  encode_block(code, x, n, scale, codes.data());
  for (std::int64_t i = 0; i < n; ++i) {
    const auto both = static_cast<std::size_t>(codes[static_cast<std::size_t>(i / 2)]);
    x[i] = levels_of(code).levels[i % 2 == 0 ? both >> 4 : both & 15] * kept;
  }
}

/// Decodes n elements of a part of a weight from element `first` of the part on, which begins a quantum.
inline void decode_quanta(const WeightForm& form, const std::byte* quanta, const PartOfMatrix& part,
                          std::int64_t first, std::int64_t n, const std::vector<float>& statistics,
                          float* to) {
  const auto statistic = [&](std::int64_t i) { return statistics[static_cast<std::size_t>(i)]; };
  for (std::int64_t i = 0; i < n; ++i) {
    const std::byte* const codes = quanta + i / code_quantum * form.quantum_bytes();
    const std::int64_t in_quantum = i % code_quantum, element = part.index_of(first + i);
    if (form.code == WeightCode::int8) {
      to[i] = decode_int8(static_cast<std::int8_t>(codes[in_quantum]), statistic(element / part.columns));
      continue;
    }
    const std::byte* const scale =
        codes + form.code_bytes() + in_quantum / scale_block * (form.nested ? 1 : 4);
    float kept = 0;
    if (form.nested)
      kept = nested_scale(scale_levels[static_cast<std::size_t>(*scale)], statistic(element / scale_group),
                          statistics.back());
    else
      std::memcpy(&kept, scale, sizeof kept);
    const auto both = static_cast<std::size_t>(codes[in_quantum / 2]);
    to[i] = levels_of(form.code).levels[i % 2 == 0 ? both >> 4 : both & 15] * kept;
  }
}

/// The properties that the scales of a weight have in common, found block by block or row by row in any
/// order, and on several ranks: largest and least are joined by their maxima, and sums are added.
class ScalesOfWeight {
 public:
  ScalesOfWeight(WeightForm form, std::int64_t elements, std::int64_t columns)
      : form_(form),
        columns_(columns),
        blocks_(ceil_div(elements, scale_block)),
        largest_(static_cast<std::size_t>(form.statistics(elements, columns)), none),
        least_(form.nested ? largest_.size() : 0, none) {}

  /// Adds the scale of the block that begins at an element of the weight. counts: its term of the mean.
  void add_block(std::int64_t element, float scale, bool counts) {
    const auto group = static_cast<std::size_t>(element / scale_group);
    largest_[group] = std::max(largest_[group], scale);
    least_[group] = std::max(least_[group], -scale);
    if (counts) sum_.add(scale);
  }
  /// Adds an element of a row.
  void add_element(std::int64_t element, float value) {
    float& largest = largest_[static_cast<std::size_t>(element / columns_)];
    largest = std::max(largest, std::abs(value));
  }
  /// Adds elements from `begin` on, a multiple of scale_block, to the end of a block or of the weight.
  void add(std::int64_t begin, const float* x, std::int64_t count) {
    for (std::int64_t i = 0; form_.nested && i < count; i += scale_block) {
      const std::int64_t n = std::min(scale_block, count - i);
      add_block(begin + i, ByScale::kept(largest_magnitude(x + i, n), n == scale_block), true);
    }
    for (std::int64_t i = 0; form_.code == WeightCode::int8 && i < count; ++i) add_element(begin + i, x[i]);
  }

  std::vector<float>& largest() { return largest_; }
  std::vector<float>& least() { return least_; }
  ExactSum& sum() { return sum_; }

  /// Returns the weight's statistics, once all is added.
  std::vector<float> statistics() const {
    if (form_.code == WeightCode::int8) return largest_;
    if (!form_.nested) return {0.0F};
    std::vector<float> found(largest_.size());
    const auto mean = static_cast<float>(sum_.value() / static_cast<double>(blocks_));
    for (std::size_t g = 0; g + 1 < found.size(); ++g) {
      const bool whole = static_cast<std::int64_t>(g + 1) * nested_block <= blocks_;
      found[g] = ByScale::kept(std::max(std::abs(largest_[g] - mean), std::abs(-least_[g] - mean)), whole);
    }
    found.back() = mean;
    return found;
  }

 private:
  static constexpr float none = -std::numeric_limits<float>::infinity();

  WeightForm form_;
  std::int64_t columns_, blocks_;
  std::vector<float> largest_;  ///< of a group's scales, or of a row's magnitudes
  std::vector<float> least_;    ///< of a group's scales, with its sign turned
  ExactSum sum_;                ///< of the scales
};

}  // namespace ztrain
