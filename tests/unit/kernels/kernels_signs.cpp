// Sums in signs against float64: what codes say and what errors keep add up to what was there.

#include "kernels/signs/signs.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_signs_test {
namespace {

using namespace ztrain::test;

constexpr std::int64_t quanta = 6, count = quanta * code_quantum, ranks = 3, part = 2 * code_quantum;
constexpr double beta1 = 0.75;
/// A parameter that ends within a quantum, one of a single element, and a quantum of none.
const SignPieces pieces{{0, 700}, {768, 1}, {1280, 256}};

bool is_in(const SignPieces& of, std::int64_t i) {
  for (const SignPiece& p : of)
    if (p.begin <= i && i < p.begin + p.count) return true;
  return false;
}

SignPieces pieces_of(std::int64_t begin) {
  SignPieces own;
  for (const SignPiece& p : pieces) {
    const std::int64_t from = std::max(p.begin, begin), to = std::min(p.begin + p.count, begin + part);
    if (from < to) own.push_back({from - begin, to - from});
  }
  return own;
}

/// What codes of whole quanta say, element by element.
std::vector<double> decoded(const Array<std::uint8_t>& codes) {
  std::vector<double> values;
  for (std::size_t q = 0; q < codes.size() / sign_quantum_bytes; ++q) {
    const std::uint8_t* quantum = codes.data() + q * sign_quantum_bytes;
    float scale = 0;
    std::memcpy(&scale, quantum + 32, sizeof scale);
    for (std::size_t i = 0; i < 256; ++i)
      values.push_back((quantum[i / 8] >> (i % 8) & 1) != 0 ? scale : -double{scale});
  }
  return values;
}

/// Each quantum's signs times the mean magnitude of its elements, of those of a piece.
std::vector<double> signs_of(const std::vector<double>& x, const SignPieces& of) {
  std::vector<double> values(x.size(), 0);
  for (std::size_t q = 0; q < x.size(); q += 256) {
    double sum = 0, n = 0;
    for (std::size_t i = q; i < q + 256; ++i)
      if (is_in(of, static_cast<std::int64_t>(i))) sum += std::abs(x[i]), ++n;
    for (std::size_t i = q; i < q + 256 && n > 0; ++i) values[i] = x[i] >= 0 ? sum / n : -sum / n;
  }
  return values;
}

StepScalars scalars_of_step() {
  StepScalars s;
  s.valid_tokens = 4;
  s.loss_scale = 2;
  return s;
}

template <class G, class M>
struct Rank {
  Array<G> gradient = Array<G>(count);
  Array<float> error = Array<float>(count);
  Array<std::uint8_t> codes = Array<std::uint8_t>(quanta * sign_quantum_bytes);
};

template <class G>
Rank<G, float> rank_of(std::int64_t r) {
  Rank<G, float> rank;
  for (std::int64_t i = 0; i < count; ++i) {
    rank.gradient[static_cast<std::size_t>(i)] = static_cast<G>(std::sin(0.7 * i + 5 * r) * (1 + i / 256));
    rank.error[static_cast<std::size_t>(i)] =
        is_in(pieces, i) ? static_cast<float>(0.01 * std::cos(0.3 * i + r)) : 0;
  }
  return rank;
}

template <class T>
struct Signs : ::testing::Test {};
using Types = ::testing::Types<float, bf16, double>;
TYPED_TEST_SUITE(Signs, Types);

/// Three ranks sum up a momentum, each of them two quanta of it.
TYPED_TEST(Signs, LoseNothing) {
  using G = TypeParam;
  using M = std::conditional_t<std::is_same_v<G, double>, double, float>;
  using To = M;
  const TestExec exec;
  const StepScalars scalars = scalars_of_step();
  Array<M> momentum(count);
  for (std::size_t i = 0; i < count; ++i)
    momentum[i] = static_cast<M>(std::sin(1.3 * static_cast<double>(i)));
  std::vector<Rank<G, float>> all;
  std::vector<double> whole(count, 0), terms(count, 0);  // of all ranks: what was there, what codes say
  for (std::int64_t r = 0; r < ranks; ++r) {
    all.push_back(rank_of<G>(r));
    Rank<G, float>& rank = all.back();
    std::vector<double> u(count, 0);
    for (std::size_t i = 0; i < count; ++i)
      if (is_in(pieces, static_cast<std::int64_t>(i)))
        u[i] = beta1 / ranks * momentum[i] + (1 - beta1) / 8 * static_cast<double>(rank.gradient[i]) +
               rank.error[i];
    encode_signs<G, M>(*exec, {beta1, ranks}, pieces, view(std::as_const(rank.gradient)),
                       view(std::as_const(momentum)), &scalars, view(rank.error), view(rank.codes));
    const std::vector<double> said = decoded(rank.codes), expected = signs_of(u, pieces);
    for (std::size_t i = 0; i < count; ++i) {
      if (!is_in(pieces, static_cast<std::int64_t>(i))) {
        EXPECT_EQ(rank.error[i], 0) << i;
        continue;
      }
      ASSERT_NEAR(said[i], expected[i], 1e-5 * std::abs(expected[i])) << i;
      ASSERT_NEAR(said[i] + rank.error[i], u[i], 3e-7 * (1 + std::abs(u[i]))) << i;
      whole[i] += u[i];
      terms[i] += said[i];
    }
  }
  Array<std::uint8_t> sum(quanta * sign_quantum_bytes);
  constexpr std::size_t part_bytes = 2 * sign_quantum_bytes;
  for (std::int64_t r = 0; r < ranks; ++r) {
    Array<std::uint8_t> given(ranks * part_bytes), codes(part_bytes);
    for (std::size_t from = 0; from < ranks; ++from)
      std::copy_n(all[from].codes.begin() + r * part_bytes, part_bytes, given.begin() + from * part_bytes);
    sum_signs(*exec, r * part, pieces_of(r * part), view(std::as_const(given)), &scalars,
              view(all[static_cast<std::size_t>(r)].error), view(codes));
    std::copy_n(codes.begin(), part_bytes, sum.begin() + r * part_bytes);
  }
  const std::vector<double> said = decoded(sum), expected = signs_of(terms, pieces);
  Array<To> gradient(count);
  decode_signs<To, M>(*exec, beta1, pieces, view(std::as_const(sum)), view(std::as_const(momentum)), &scalars,
                      view(gradient));
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_in(pieces, static_cast<std::int64_t>(i))) {
      EXPECT_EQ(gradient[i], 0) << i;
      continue;
    }
    ASSERT_NEAR(said[i], expected[i], 1e-5 * std::abs(expected[i])) << i;
    double kept = 0;
    for (const Rank<G, float>& rank : all) kept += rank.error[i];
    ASSERT_NEAR(said[i] + kept, whole[i], 2e-6 * (1 + std::abs(whole[i]))) << i;
    // The optimizer makes of the momentum what the codes say.
    ASSERT_NEAR(beta1 * momentum[i] + (1 - beta1) / 8 * static_cast<double>(gradient[i]), said[i], 2e-6) << i;
  }
}

/// A step that is not taken, or has no tokens, leaves errors as they are.
TEST(Signs, KeepErrorsOfStepsThatAreNotTaken) {
  const TestExec exec;
  for (const bool skipped : {true, false}) {
    StepScalars scalars = scalars_of_step();
    (skipped ? scalars.found_inf : scalars.valid_tokens) = skipped ? 1 : 0;
    Rank<float, float> rank = rank_of<float>(0);
    const Array<float> before = rank.error, momentum(count);
    encode_signs<float, float>(*exec, {beta1, ranks}, pieces, view(std::as_const(rank.gradient)),
                               view(momentum), &scalars, view(rank.error), view(rank.codes));
    sum_signs(*exec, 0, pieces, view(std::as_const(rank.codes)), &scalars, view(rank.error),
              view(rank.codes));
    EXPECT_EQ(rank.error, before);
    Array<float> gradient(count);
    decode_signs<float, float>(*exec, beta1, pieces, view(std::as_const(rank.codes)), view(momentum),
                               &scalars, view(gradient));
    for (const float g : gradient) EXPECT_TRUE(skipped ? std::isnan(g) : g == 0);
  }
}

TEST(Signs, RefusePartsOfQuantaAndOfArrays) {
  const TestExec exec;
  const StepScalars scalars = scalars_of_step();
  const Array<float> x(512);
  Array<float> error(512);
  Array<std::uint8_t> codes(2 * sign_quantum_bytes), odd(2 * sign_quantum_bytes + 1);
  const auto refused = [&](const SignPieces& of, Array<std::uint8_t>& to) {
    EXPECT_THROW(
        (encode_signs<float, float>(*exec, {}, of, view(x), view(x), &scalars, view(error), view(to))),
        Error);
  };
  refused({{1, 8}}, codes);
  refused({{0, 513}}, codes);
  refused({{0, 512}}, odd);
}

}  // namespace
}  // namespace ztrain::kernels::kernels_signs_test
