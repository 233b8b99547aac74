// Weights in 4 and 8 bits: codes and scales against those of bitsandbytes, and decoding, of parts too,
// against float64.

#include "kernels/dequantize/dequantize.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "kernels/dequantize/block_codes.hpp"
#include "kernels/dequantize/reference.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_dequantize_test {
namespace {

using namespace ztrain::test;

constexpr WeightForm forms[] = {{WeightCode::nf4},
                                {WeightCode::nf4, true},
                                {WeightCode::fp4},
                                {WeightCode::fp4, true},
                                {WeightCode::int8}};

/// Multiples of 1/64, the same on every machine: two whole blocks and half a block.
std::vector<float> numbers() {
  std::vector<float> x;
  for (int i = 0; i < 160; ++i)
    x.push_back(static_cast<float>(i * 37 % 101 - 50) / 64 * static_cast<float>(1 + i / 64));
  return x;
}

std::string codes_of(WeightCode code) {
  const std::vector<float> x = numbers();
  std::string text;
  for (std::int64_t begin = 0; begin < std::ssize(x); begin += scale_block) {
    const std::int64_t n = std::min(scale_block, std::ssize(x) - begin);
    std::vector<std::byte> codes(static_cast<std::size_t>(n / 2));
    encode_block(code, &x[static_cast<std::size_t>(begin)], n,
                 largest_magnitude(&x[static_cast<std::size_t>(begin)], n), codes.data());
    for (const std::byte both : codes) text += fmt::format("{:02x}", static_cast<int>(both));
  }
  return text;
}

// The expected codes are those that bitsandbytes 0.50.2 makes of these numbers.
TEST(QuantizedWeights, HaveTheCodesOfBitsandbytes) {
  EXPECT_EQ(
      codes_of(WeightCode::nf4),
      "04c16e29f3b05d17e29f3c05d18e2af4c16e18e3b05d17e29f3b05d18e2af4c16d18e3b04c17e29f3b05d17e2af4c06d18e2"
      "a04c16e29f3b05d17e29f3c05d18e2af4c16e18e3b05d17e29f3b05d18e2");
  EXPECT_EQ(
      codes_of(WeightCode::fp4),
      "bf5a92a63c4be5a02d63c4be2a12d73f5a92a63d4bf5a92d63c4be5a12d73c5be2a63d4bf5a92d63c4be5a12d73c5be2a12d"
      "7bf5a92a63c4be5a02d63c4be2a12d73f5a92a63d4bf5a92d63c4be5a12d");
  const std::vector<float> x = numbers();
  const float largest = largest_magnitude(x.data(), 40);
  const std::vector<int> expected{-127, -33, 61, -102, -8, 86, -76, 18, 112, -51, 43, -119, -25, 69};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(encode_int8(x[i], largest), expected[i]) << i;
  const std::pair<std::size_t, float> levels[] = {
      {0, -0x1.fc6666p-1F},   {100, -0x1.e978d4p-8F}, {126, -0x1.27476ep-21F}, {127, 0},
      {130, 0x1.040bfep-17F}, {200, 0x1.de6666p-3F},  {254, 0x1.fc6666p-1F},   {255, 1}};
  for (const auto& [code, level] : levels) {
    EXPECT_EQ(scale_levels[code], level) << code;
    EXPECT_EQ(encode_scale(level * 3, 3, true), code) << code;
  }
}

TEST(QuantizedWeights, AreTheNearestLevels) {
  for (const WeightCode code : {WeightCode::nf4, WeightCode::fp4}) {
    const FourBits& levels = levels_of(code);
    for (int i = -1000; i <= 1000; ++i) {
      const float x[2] = {static_cast<float>(i) / 1000, 1};
      std::byte both{};
      encode_block(code, x, 2, 1, &both);
      float nearest = 2;
      for (const float level : levels.levels) nearest = std::min(nearest, std::abs(level - x[0]));
      EXPECT_EQ(std::abs(levels.levels[static_cast<std::size_t>(both) >> 4] - x[0]), nearest) << x[0];
    }
  }
}

/// A weight of `count` elements in rows of `columns`, as it is kept.
struct Kept {
  std::vector<std::uint8_t> quanta;
  std::vector<float> statistics;
};
Kept kept(WeightForm form, std::int64_t count, std::int64_t columns) {
  Kept k;
  for (std::int64_t i = 0; i < form.bytes(count); ++i)
    k.quanta.push_back(static_cast<std::uint8_t>(philox(3, 1, static_cast<std::uint64_t>(i))[0]));
  const Array<float> scales = random<float>(count, 5);
  if (form.in_blocks() && !form.nested)
    for (std::int64_t b = 0; b < ceil_div(count, scale_block); ++b)
      std::memcpy(&k.quanta[static_cast<std::size_t>(b / blocks_per_quantum * form.quantum_bytes() +
                                                     form.code_bytes() + b % blocks_per_quantum * 4)],
                  &scales[static_cast<std::size_t>(b)], 4);
  for (std::int64_t i = 0; i < form.statistics(count, columns); ++i)
    k.statistics.push_back(scales[static_cast<std::size_t>(i)] + 3);
  return k;
}

template <class T>
struct Dequantize : ::testing::Test {};
TYPED_TEST_SUITE(Dequantize, FloatTypes);

TYPED_TEST(Dequantize, IsTheReference) {
  using T = TypeParam;
  const TestExec exec;
  for (const WeightForm form : forms)
    for (const auto& [count, columns] :
         {std::pair<std::int64_t, std::int64_t>{3, 3}, {1000, 40}, {50000, 500}}) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(form.code) << form.nested << " of " << count);
      const Kept k = kept(form, count, columns);
      const Array<std::uint8_t> codes(k.quanta.begin(), k.quanta.end());
      const Array<float> statistics(k.statistics.begin(), k.statistics.end());
      const std::vector<double> expected =
          reference::dequantize(form, k.quanta, k.statistics, count, columns);
      for (const std::int64_t begin : {std::int64_t{0}, count / 3, count / 2}) {
        Array<T> y(static_cast<std::size_t>(count - begin));
        const CodedWeight weight{form,
                                 codes.data() + form.bytes(begin / code_quantum * code_quantum),
                                 statistics.data(),
                                 std::ssize(k.statistics),
                                 begin,
                                 {count, count, 0, columns}};
        make_dequantize<T>(weight, view(y))(*exec);
        expect_close(y, {expected.begin() + begin, expected.end()}, 1e-5, "y");
      }
    }
}

/// Columns 64 to 191 of rows of 320, whose codes were made of these columns alone, with the whole's
/// statistics.
TEST(Dequantize, DecodesColumns) {
  const TestExec exec;
  const std::int64_t rows = 150, columns = 320, own = 128, first = 64;
  for (const WeightForm form : forms) {
    const Kept k = kept(form, rows * columns, columns);
    const Array<std::uint8_t> codes(k.quanta.begin(), k.quanta.end());
    const Array<float> statistics(k.statistics.begin(), k.statistics.end());
    Array<float> y(static_cast<std::size_t>(rows * own)), one(scale_block);
    const PartOfMatrix part{own, columns, first, columns};
    make_dequantize<float>({form, codes.data(), statistics.data(), std::ssize(k.statistics), 0, part},
                           view(y))(*exec);
    // Each block as if it were a weight of its own, whose statistics are those of its place.
    for (std::int64_t e = 0; e < rows * own; e += scale_block) {
      const std::int64_t element = e / own * columns + first + e % own;
      EXPECT_EQ(part.index_of(e), element);
      std::vector<float> of_place(k.statistics);
      if (form.nested) of_place[0] = k.statistics[static_cast<std::size_t>(element / scale_group)];
      if (form.code == WeightCode::int8)
        of_place[0] = k.statistics[static_cast<std::size_t>(element / columns)];
      const Array<float> alone(of_place.begin(), of_place.end());
      const std::int64_t begin = e % code_quantum;
      make_dequantize<float>({form,
                              codes.data() + form.bytes(e / code_quantum * code_quantum),
                              alone.data(),
                              std::ssize(of_place),
                              begin,
                              {1 << 20, 1 << 20, 0, 1 << 20}},
                             view(one))(*exec);
      for (std::int64_t i = 0; i < scale_block; ++i)
        ASSERT_EQ(y[static_cast<std::size_t>(e + i)], one[static_cast<std::size_t>(i)]) << e + i;
    }
  }
}

/// Two quanta whose blocks differ in size: one of zeros, one of denormal numbers, and magnitudes from 1e-3 to
/// 1e3.
std::vector<double> weights_of_blocks() {
  std::vector<double> x;
  for (int i = 0; i < 512; ++i) {
    const int block = i / 64;
    const double size = block == 3 ? 0 : block == 5 ? 1e-41 : std::pow(10.0, block - 3);
    x.push_back(size * std::sin(1.7 * i));
  }
  return x;
}

template <class T>
struct BlockCodes : ::testing::Test {};
TYPED_TEST_SUITE(BlockCodes, FloatTypes);

TYPED_TEST(BlockCodes, AreTheReferenceAndNearTheWeights) {
  using T = TypeParam;
  const TestExec exec;
  for (const std::int64_t bits : {8, 4}) {
    SCOPED_TRACE(::testing::Message() << bits << " bits");
    Array<T> x(512), y(512);
    for (std::size_t i = 0; i < 512; ++i) x[i] = static_cast<T>(weights_of_blocks()[i]);
    Array<std::uint8_t> codes(static_cast<std::size_t>(2 * coded_quantum_bytes(bits)));
    encode_blocks<T>(*exec, bits, view(std::as_const(x)), {1, 0, 512}, codes.data());
    decode_blocks<T>(*exec, bits, {codes.data()}, false, view(y));
    const std::vector<double> kept(x.begin(), x.end());
    const std::vector<double> expected = reference::round_in_blocks(bits, kept);
    for (std::size_t i = 0; i < 512; ++i)  // scales are fp32
      ASSERT_NEAR(static_cast<double>(y[i]), expected[i],
                  (1.01 * rounding<T> + 3e-7) * std::abs(expected[i]) + 1e-38)
          << i;
    for (std::size_t b = 0; b < 8; ++b) {
      double largest = 0;
      for (std::size_t i = 64 * b; i < 64 * (b + 1); ++i) largest = std::max(largest, std::abs(kept[i]));
      // Half a level, and the rounding to T; below 1e-38 nothing is promised.
      const double bound = largest * (bits == 8 ? 0.5 / 127 : 0.5 / 7) * 1.001 + largest * 0.004 + 1e-38;
      for (std::size_t i = 64 * b; i < 64 * (b + 1); ++i)
        EXPECT_LE(std::abs(static_cast<double>(y[i]) - kept[i]), bound) << i;
    }
  }
}

/// Gradients of three ranks for six slots, of two nodes of three ranks: a part of each slot is encoded, and
/// what all give to a slot is added in fp32.
TYPED_TEST(BlockCodes, AreSummedInTheOrderOfRanks) {
  using T = TypeParam;
  const TestExec exec;
  constexpr std::int64_t slots = 6, nodes = 2, slot = 1024, begin = 256, count = 512, ranks = 3;
  for (const std::int64_t bits : {8, 4})
    for (const bool accumulate : {false, true}) {
      const auto own = static_cast<std::size_t>(slots * count / code_quantum * coded_quantum_bytes(bits));
      Array<std::uint8_t> codes(ranks * own);
      std::vector<std::vector<double>> said(slots, std::vector<double>(count, 0));  // by place in the codes
      for (std::int64_t r = 0; r < ranks; ++r) {
        Array<T> x(slots * slot);
        for (std::int64_t i = 0; i < slots * slot; ++i)
          x[static_cast<std::size_t>(i)] = static_cast<T>(std::sin(0.7 * i + 11 * r) * (1 + i / 64 % 5));
        encode_blocks<T>(*exec, bits, view(std::as_const(x)), {slots, begin, count, nodes},
                         codes.data() + static_cast<std::size_t>(r) * own);
        for (std::int64_t s = 0; s < slots; ++s) {
          const std::int64_t from = s % nodes * (slots / nodes) + s / nodes;
          const auto first = x.begin() + from * slot + begin;
          const std::vector<double> part = reference::round_in_blocks(bits, {first, first + count});
          for (std::size_t i = 0; i < part.size(); ++i) said[static_cast<std::size_t>(s)][i] += part[i];
        }
      }
      Array<T> sums(slots * count);
      for (T& sum : sums) sum = static_cast<T>(accumulate ? 2 : 9);
      decode_blocks<T>(*exec, bits, {codes.data(), ranks}, accumulate, view(sums));
      std::size_t halves = 0;  // what lies half between two codes may become either
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const double expected = said[i / count][i % count] + (accumulate ? 2 : 0);
        const double apart = std::abs(static_cast<double>(sums[i]) - expected);
        halves += apart > 1.01 * rounding<T> * std::abs(expected) + 1e-5 ? 1 : 0;
        ASSERT_LE(apart, 5.1 / (bits == 8 ? 127 : 7) + 0.1) << i << " of " << bits << " bits";
      }
      EXPECT_LE(halves, sums.size() / 100) << bits << " bits";
    }
}

TEST(BlockCodes, KeepWhatIsNotFinite) {
  const TestExec exec;
  for (const std::int64_t bits : {8, 4})
    for (const float wrong : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      Array<float> x(256), y(256);
      for (std::size_t i = 0; i < 256; ++i) x[i] = 1;
      x[70] = wrong;
      Array<std::uint8_t> codes(static_cast<std::size_t>(coded_quantum_bytes(bits)));
      encode_blocks<float>(*exec, bits, view(std::as_const(x)), {1, 0, 256}, codes.data());
      decode_blocks<float>(*exec, bits, {codes.data()}, false, view(y));
      for (std::size_t i = 0; i < 256; ++i) EXPECT_EQ(std::isnan(y[i]), i / 64 == 1) << i;
    }
}

TEST(BlockCodes, RefuseOtherBitsAndPartsOfQuanta) {
  const TestExec exec;
  const Array<float> x(300);
  Array<std::uint8_t> codes(1000);
  EXPECT_THROW(encode_blocks<float>(*exec, 8, view(x), {1, 0, 300}, codes.data()), Error);
  EXPECT_THROW(encode_blocks<float>(*exec, 5, {x.data(), 256}, {1, 0, 256}, codes.data()), Error);
  EXPECT_THROW(encode_blocks<float>(*exec, 8, {x.data(), 256}, {1, 256, 256}, codes.data()), Error);
}

}  // namespace
}  // namespace ztrain::kernels::kernels_dequantize_test
