// 16-bit floats to fp32 and back in groups: the bits of their own conversions, whatever stands beside them.

#include "kernels/launch/wide.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

namespace ztrain::kernels::kernels_wide_test {
namespace {

template <class T>
struct WideConversions : ::testing::Test {};
using HalfTypes = ::testing::Types<bf16, f16>;
TYPED_TEST_SUITE(WideConversions, HalfTypes);

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float v : values) bits.push_back(std::bit_cast<std::uint32_t>(v));
  return bits;
}

template <class T>
void expect_narrowed(const std::vector<float>& from) {
  std::vector<T> to(from.size());
  narrow(from.data(), to.data(), static_cast<std::int64_t>(from.size()));
  for (std::size_t i = 0; i < from.size(); ++i)
    ASSERT_EQ(to[i].bits, T(from[i]).bits)
        << "element " << i << " has bits " << std::bit_cast<std::uint32_t>(from[i]);
}

TYPED_TEST(WideConversions, WidenEveryValue) {
  std::vector<TypeParam> from(1 << 16);
  for (std::size_t i = 0; i < from.size(); ++i) from[i].bits = static_cast<std::uint16_t>(i);
  std::vector<float> to(from.size());
  widen(from.data(), to.data(), 1 << 16);
  EXPECT_EQ(bits_of(to), bits_of(std::vector<float>(from.begin(), from.end())));
}

/// Ties, what is beside them, and the ends, at every sign and exponent; infinities and NaN are among them.
TYPED_TEST(WideConversions, NarrowAtEveryBoundary) {
  std::vector<float> from;
  for (const std::uint32_t low :
       {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
    for (std::uint32_t high = 0; high < 1u << 16; ++high)
      from.push_back(std::bit_cast<float>(high << 16 | low));
  expect_narrowed<TypeParam>(from);
}

/// What the processor's instructions convert otherwise, or not at all, at every place among numbers.
TYPED_TEST(WideConversions, NarrowNumbersBesideOthers) {
  for (const std::uint32_t odd :
       {0x7f800001u, 0xffffffffu, 0x7fc12345u, 0x00000001u, 0x80012345u, 0x7f800000u})
    for (std::size_t place = 0; place < 3 * wide_group; ++place) {
      std::vector<float> from;
      for (int i = 0; i < 3 * wide_group + 5; ++i) from.push_back(1.001f * static_cast<float>(i - 40));
      from[place] = std::bit_cast<float>(odd);
      expect_narrowed<TypeParam>(from);
    }
}

TYPED_TEST(WideConversions, TouchNothingBehindTheEnd) {
  for (std::int64_t n = 0; n <= 2 * wide_group + 1; ++n) {
    const std::vector<TypeParam> halves(static_cast<std::size_t>(n), TypeParam(3));
    std::vector<float> wide(halves.size() + wide_group, -1);
    widen(halves.data(), wide.data(), n);
    std::vector<TypeParam> back(wide.size(), TypeParam(7));
    narrow(wide.data(), back.data(), n);
    for (std::size_t i = 0; i < wide.size(); ++i) {
      const bool inside = static_cast<std::int64_t>(i) < n;
      ASSERT_EQ(wide[i], inside ? 3 : -1) << i << " of " << n;
      ASSERT_EQ(static_cast<float>(back[i]), inside ? 3 : 7) << i << " of " << n;
    }
  }
}

}  // namespace
}  // namespace ztrain::kernels::kernels_wide_test
