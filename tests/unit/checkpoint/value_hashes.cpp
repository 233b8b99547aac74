// Hashes of values do not depend on how a parameter is cut, and change with any bit, place or name.

#include "checkpoint/value_hashes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "checkpoint/format/convert.hpp"

namespace ztrain::checkpoint {
namespace {

constexpr std::int64_t count = 1000;

std::vector<ParameterShape> two() {
  return {{.name = "a", .shape = {count}, .slice = {}}, {.name = "b", .shape = {count}, .slice = {}}};
}

std::vector<float> values() {
  std::vector<float> v;
  for (int i = 0; i < count; ++i) v.push_back(static_cast<float>(i % 7) - 0.1f * static_cast<float>(i));
  return v;
}

const std::byte* bytes_of(const std::vector<float>& v) {
  return reinterpret_cast<const std::byte*>(v.data());
}

std::uint64_t whole(const std::vector<float>& v, std::size_t parameter = 0) {
  ValueHashes hashes(two());
  hashes.add(parameter, 0, count, bytes_of(v), DType::f32);
  return hashes.sums()[parameter];
}

TEST(ValueHashes, AreSumsOverAnyParts) {
  const std::vector<float> v = values();
  for (const std::int64_t part : {1, 7, 256, 999}) {
    ValueHashes one(two()), other(two());
    for (std::int64_t begin = 0; begin < count; begin += part)
      (begin / part % 2 == 0 ? one : other)
          .add(0, begin, std::min(part, count - begin), bytes_of(v) + 4 * begin, DType::f32);
    EXPECT_EQ(one.sums()[0] + other.sums()[0], whole(v)) << "parts of " << part;
  }
}

TEST(ValueHashes, TellBitsPlacesAndNamesApart) {
  const std::vector<float> v = values();
  for (const std::size_t i : {std::size_t{0}, std::size_t{499}, std::size_t{999}})
    for (const int bit : {0, 13, 31}) {
      std::vector<float> other = v;
      other[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(v[i]) ^ (std::uint32_t{1} << bit));
      EXPECT_NE(whole(other), whole(v)) << "bit " << bit << " of value " << i;
    }
  std::vector<float> swapped = v;
  std::swap(swapped[3], swapped[4]);
  EXPECT_NE(whole(swapped), whole(v));
  EXPECT_NE(whole(v, 1), whole(v, 0));
}

TEST(ValueHashes, AreOfValuesInOneDtype) {
  const std::vector<float> v = values();
  std::vector<std::byte> narrow(2 * count);
  convert(bytes_of(v), DType::f32, narrow.data(), DType::bf16, count);
  ValueHashes rounded(two()), given(two());
  rounded.set_dtype(0, DType::bf16);
  rounded.add(0, 0, count, bytes_of(v), DType::f32);
  given.add(0, 0, count, narrow.data(), DType::bf16);
  EXPECT_EQ(rounded.sums()[0], given.sums()[0]);
  EXPECT_NE(rounded.sums()[0], whole(v));
  EXPECT_EQ(given.dtypes(), (std::vector<int>{static_cast<int>(DType::bf16), -1}));
}

}  // namespace
}  // namespace ztrain::checkpoint
