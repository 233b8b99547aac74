// Rotary embeddings' scalings, and heads that are turned in part or by pairs of neighbours.

#include <gtest/gtest.h>

#include <cmath>
#include <complex>

#include "base/error.hpp"
#include "kernels/rope/rope.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_rope_test {
namespace {

using namespace ztrain::test;

struct Case {
  RopeScaling rope;
  double amplitude;
  std::vector<double> frequencies;
};

/// Numbers of ROPE_INIT_FUNCTIONS of transformers 5.24.0 with head_dim 16, which it computes in fp32.
std::vector<Case> cases() {
  RopeScaling dynamic{1e4, "dynamic", 4}, qwen{1e6, "yarn", 4, 0, 0, 32768},
      untruncated{1.5e5, "yarn", 32, 0, 0, 4096}, mscale{1e4, "yarn", 40, 0, 0, 4096},
      phi{1e4, "longrope", 0, 0, 0, 4096};
  dynamic.max_position = 4096;
  RopeScaling short_dynamic = dynamic;
  short_dynamic.length = 100;
  dynamic.length = 16384;
  untruncated.truncate = false;
  mscale.mscale = 1;
  mscale.mscale_all_dim = 0.707;
  phi.max_position = 131072;
  phi.short_factors = {1.05, 1.05, 1.05, 1.1, 1.1, 1.15, 1.2, 1.25};
  phi.long_factors = {1.03, 1.05, 1.05, 1.08, 1.23, 1.23, 1.3, 1.45};
  phi.length = 4096;
  RopeScaling long_phi = phi;
  long_phi.length = 4097;

  return {
      {{1e4, "linear", 2},
       1,
       {0.5, 0.158113882, 0.0500000007, 0.0158113893, 0.00499999989, 0.00158113893, 0.000500000024,
        0.000158113893}},
      {dynamic,
       1,
       {1, 0.219212472, 0.0480541028, 0.0105340583, 0.00230919686, 0.000506204728, 0.000110966386,
        2.43252125e-05}},
      {short_dynamic,
       1,
       {1, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786, 0.00100000005,
        0.000316227786}},
      {qwen,
       1.1386294361119891,
       {1, 0.177827939, 0.0316227786, 0.00421755994, 0.000500000024, 4.44569851e-05, 7.90569356e-06,
        1.40585337e-06}},
      {untruncated,
       1.3465735902799727,
       {1, 0.225418001, 0.0508132726, 0.00679495931, 0.000456483918, 1.8188337e-05, 4.09997847e-06,
        9.24208962e-07}},
      {mscale,
       1.0857263992561355,
       {1, 0.316227764, 0.100000001, 0.0239147246, 0.00512499968, 0.000849862176, 2.49999994e-05,
        7.90569447e-06}},
      {{5e5, "llama3", 8, 1, 4, 8192},
       1,
       {1, 0.193922758, 0.0376060307, 0.00729266508, 0.000524846022, 3.42810235e-05, 6.64786967e-06,
        1.28917316e-06}},
      {phi,
       1.1902380714238083,
       {0.952381015, 0.301169306, 0.095238097, 0.0287479796, 0.0090909088, 0.00274980697, 0.000833333354,
        0.000252982223}},
      {long_phi,
       1.1902380714238083,
       {0.970873833, 0.301169306, 0.095238097, 0.0292803515, 0.00813008193, 0.00257095764, 0.00076923077,
        0.000218088127}},
  };
}

TEST(RopeForms, ScalingsHaveTheFrequenciesOfTransformers) {
  for (const Case& c : cases()) {
    const RopeFrequencies f = rope_frequencies(c.rope, 16);
    ASSERT_EQ(f.count, 8);
    EXPECT_NEAR(f.amplitude, c.amplitude, 1e-14) << c.rope.scaling;
    for (std::size_t i = 0; i < 8; ++i)
      EXPECT_NEAR(f.at[i] / c.frequencies[i], 1, 1e-6) << c.rope.scaling << " " << i;
  }
  EXPECT_THROW(rope_frequencies({1e4, "spiral"}, 16), Error);
  EXPECT_THROW(rope_frequencies(cases().back().rope, 8), Error);
}

TEST(Rope, AFactorOfSinesAndCosinesBelongsToYarnAndLongrope) {
  RopeScaling rope{1e4, "default", 4, 0, 0, 4096};
  rope.attention_factor = 1.5;
  rope.short_factors = {1, 1, 1};
  rope.max_position = 4096;
  for (const char* scaling : {"default", "linear", "dynamic", "yarn", "longrope"}) {
    rope.scaling = scaling;
    const bool has = rope.scaling == "yarn" || rope.scaling == "longrope";
    EXPECT_EQ(rope_frequencies(rope, 6).amplitude, has ? 1.5 : 1) << scaling;
  }
}

template <class T>
struct RopeForms : ::testing::Test {
  TestExec exec;
};
TYPED_TEST_SUITE(RopeForms, FloatTypes);

TYPED_TEST(RopeForms, PartOfAHeadIsTurnedByHalvesOrNeighbours) {
  using T = TypeParam;
  const std::int64_t rows = 7, all = 3, head_dim = 90;
  for (const auto& [width, from] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {2, 0}, {6, 0}, {74, 0}, {90, 0}, {6, 84}, {64, 13}}) {
    for (const bool interleaved : {false, true}) {
      const RopeForm rope{.heads = 2, .head_dim = head_dim, .from = from, .interleaved = interleaved};
      RopeForm inverse = rope;
      inverse.inverse = true;
      RopeFrequencies f = rope_frequencies({1e4, "default"}, width);
      f.amplitude = 1.25;
      const Array<std::int32_t> positions = {0, 1, 2, 50, 3, 700, 4000};
      const auto x = random<T>(rows * all * head_dim, 1);
      Array<acc_t<T>> table(static_cast<std::size_t>(rows * width));
      Array<T> y(x.size()), in_place = x, back(x.size());
      rope_table<acc_t<T>>(*this->exec, view(positions), f, matrix(table, rows));
      const auto angles = matrix(std::as_const(table), rows);
      rope_apply<T>(*this->exec, matrix(x, rows), angles, rope, matrix(y, rows));
      rope_apply<T>(*this->exec, matrix(std::as_const(in_place), rows), angles, rope, matrix(in_place, rows));
      rope_apply<T>(*this->exec, matrix(x, rows), angles, inverse, matrix(back, rows));
      EXPECT_TRUE(same_bits(y, in_place));
      auto turned = doubles(x), returned = turned;
      for (std::int64_t pair = 0; pair < rows * rope.heads * width / 2; ++pair) {
        const std::int64_t i = pair % (width / 2), head = pair / (width / 2), row = head / rope.heads;
        const std::int64_t at = (row * all + head % rope.heads) * head_dim + from;
        const auto a = static_cast<std::size_t>(at + (interleaved ? 2 * i : i));
        const auto b = static_cast<std::size_t>(at + (interleaved ? 2 * i + 1 : i + width / 2));
        const double frequency = std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(width));
        const auto turn = std::polar(1.25, positions[static_cast<std::size_t>(row)] * frequency);
        const std::complex<double> before(turned[a], turned[b]);
        const auto after = before * turn, other = before * std::conj(turn);
        turned[a] = after.real(), turned[b] = after.imag();
        returned[a] = other.real(), returned[b] = other.imag();
      }
      const double error = std::is_same_v<T, double> ? 1e-11 : 1e-5;
      expect_close(y, turned, error, "rope");
      expect_close(back, returned, error, "inverse");
    }
  }
}

}  // namespace
}  // namespace ztrain::kernels::kernels_rope_test
