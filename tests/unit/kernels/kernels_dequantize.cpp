// Weights in 4 and 8 bits: codes and scales against those of bitsandbytes, and decoding, of parts too,
// against float64.

#include "kernels/dequantize/dequantize.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

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

}  // namespace
}  // namespace ztrain::kernels::kernels_dequantize_test
