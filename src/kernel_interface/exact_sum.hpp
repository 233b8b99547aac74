#pragma once
// An exact sum of non-negative doubles: the same bits whatever the order and the grouping of the terms. A
// fixed-point number as wide as the range of double, after U. Kulisch, "Computer arithmetic and validity"
// (2008), kept in integer limbs that are added without carries. And what a rank knows of a step, with such a
// sum in it.

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace ztrain {

/// Plain 64-bit integers: sums travel between ranks as bytes. Limb i counts units of 2^(32 i - 1074). carry()
/// brings all but the last below 2^32; between two carries up to 2^31 terms, or carried sums, may be added.
struct ExactSum {
  static constexpr int limbs = 66;  ///< 2112 bits: every double, and 2^13 times the largest

  std::int64_t limb[limbs] = {};
  std::int64_t not_finite = 0;  ///< 1: a term was infinite or NaN

  /// What a term adds: to limbs first, first + 1 and first + 2, and to not_finite.
  struct Parts {
    int first = 0;
    std::int64_t low = 0, middle = 0, high = 0, not_finite = 0;
  };

  /// term >= 0; its sign is ignored.
  static constexpr Parts split(double term) {
    const auto bits = std::bit_cast<std::uint64_t>(term);
    const int exponent = static_cast<int>(bits >> 52 & 0x7ff);
    if (exponent == 0x7ff) return {.not_finite = 1};
    const std::uint64_t fraction = bits & 0xfffffffffffffu;
    const std::uint64_t mantissa = exponent > 0 ? fraction | std::uint64_t{1} << 52 : fraction;
    const int position = exponent > 0 ? exponent - 1 : 0;  // of the mantissa's last bit, from 2^-1074 on
    const int shift = position % 32;
    const std::uint64_t low = (mantissa & low_mask) << shift, high = (mantissa >> 32) << shift;
    const std::uint64_t middle = (low >> 32) + (high & low_mask);
    return {position / 32, static_cast<std::int64_t>(low & low_mask), static_cast<std::int64_t>(middle),
            static_cast<std::int64_t>(high >> 32), 0};
  }

  constexpr void add(double term) {
    const Parts parts = split(term);
    limb[parts.first] += parts.low;
    limb[parts.first + 1] += parts.middle;
    limb[parts.first + 2] += parts.high;
    not_finite |= parts.not_finite;
  }

  constexpr void add(const ExactSum& other) {
    for (int i = 0; i < limbs; ++i) limb[i] += other.limb[i];
    not_finite |= other.not_finite;
  }

  /// Equal sums have equal bytes after this.
  constexpr void carry() {
    for (int i = 0; i + 1 < limbs; ++i) {
      limb[i + 1] += limb[i] >> 32;
      limb[i] &= static_cast<std::int64_t>(low_mask);
    }
  }

  /// The sum, rounded once to nearest even; infinite beyond the range of double, NaN if a term was not
  /// finite.
  constexpr double value() const {
    if (not_finite) return std::numeric_limits<double>::quiet_NaN();
    ExactSum sum = *this;
    sum.carry();
    if (sum.limb[limbs - 1] >> 32 != 0) return std::numeric_limits<double>::infinity();
    int top = limbs - 1;
    while (top > 0 && sum.limb[top] == 0) --top;
    return sum.rounded(top);
  }

 private:
  static constexpr std::uint64_t low_mask = 0xffffffffu;

  constexpr std::uint64_t at(int i) const { return i >= 0 ? static_cast<std::uint64_t>(limb[i]) : 0; }

  /// Carried, and `top` its highest limb that is not 0. 64 leading bits hold the 53 of the result and one
  /// that tells what was left out.
  constexpr double rounded(int top) const {
    if (at(top) == 0) return 0;
    std::uint64_t leading = at(top) << 32 | at(top - 1);
    const int shift = std::countl_zero(leading);
    const std::uint64_t next = at(top - 2) << shift;
    leading = leading << shift | next >> 32;
    bool more = (next & low_mask) != 0;
    for (int i = top - 3; i >= 0; --i) more = more || limb[i] != 0;
    const double mantissa = static_cast<double>(leading | static_cast<std::uint64_t>(more));
    const int exponent = 32 * (top - 1) - shift - 1074;
    // In two steps: a power below 2^-1022 would not be exact, while the product of the second step is.
    return exponent < -1022 ? mantissa * power(-1022) * power(exponent + 1022) : mantissa * power(exponent);
  }

  /// 2^exponent, for -1022 <= exponent <= 1023.
  static constexpr double power(int exponent) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
  }
};
static_assert(sizeof(ExactSum) == 8 * (ExactSum::limbs + 1));

/// What one rank contributes to the scalars of a step. Ranks exchange it as bytes.
struct StepPartial {
  double loss_sum = 0;    ///< sum of loss weight * negative log-likelihood
  double weight_sum = 0;  ///< sum of loss weights
  ExactSum squares;       ///< of the summed gradient's elements that this rank speaks for; carried
};
static_assert(std::is_trivially_copyable_v<StepPartial>);

}  // namespace ztrain
