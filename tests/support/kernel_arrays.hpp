#pragma once
// Arrays for kernel tests: random values that T represents exactly, their float64 copies, and comparisons.
// Views are made of Arrays, which GPUs reach; of plain vectors only in float64, for the references.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/dtype.hpp"
#include "base/philox.hpp"
#include "kernel_interface/view.hpp"
#include "tests/support/test_memory.hpp"

namespace ztrain::test {

/// An (activation type, gradient type) pair for typed tests.
template <class A, class B>
struct Pair {
  using T = A;
  using G = B;
};
using GradientPairs = ::testing::Types<Pair<float, float>, Pair<bf16, float>, Pair<bf16, bf16>,
                                       Pair<f16, float>, Pair<f16, f16>, Pair<double, double>>;
using FloatTypes = ::testing::Types<float, bf16, f16, double>;

/// count normal values times scale, rounded to T.
template <class T>
Array<T> random(std::int64_t count, std::uint64_t seed, double scale = 1) {
  Array<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(scale * normal(seed, 7, i));
  return values;
}

template <class Values>
std::vector<double> doubles(const Values& values) {
  return std::vector<double>(values.begin(), values.end());
}

template <class T>
Vector<T> view(Array<T>& values) {
  return {values.data(), static_cast<std::int64_t>(values.size())};
}
template <class T>
Vector<const T> view(const Array<T>& values) {
  return {values.data(), static_cast<std::int64_t>(values.size())};
}
template <class T>
Matrix<T> matrix(Array<T>& values, std::int64_t rows) {
  return {values.data(), rows, rows > 0 ? static_cast<std::int64_t>(values.size()) / rows : 0};
}
template <class T>
Matrix<const T> matrix(const Array<T>& values, std::int64_t rows) {
  return {values.data(), rows, rows > 0 ? static_cast<std::int64_t>(values.size()) / rows : 0};
}
inline Matrix<const double> matrix(const std::vector<double>& values, std::int64_t rows) {
  return {values.data(), rows, rows > 0 ? static_cast<std::int64_t>(values.size()) / rows : 0};
}

/// A part of a view.
template <class T>
Vector<T> slice(Vector<T> whole, std::int64_t begin, std::int64_t end) {
  return {whole.data + begin, end - begin};
}

/// Half a unit in the last place of T, relative.
template <class T>
constexpr double rounding = 0x1p-24;
template <>
inline constexpr double rounding<bf16> = 0x1p-8;
template <>
inline constexpr double rounding<f16> = 0x1p-11;
template <>
inline constexpr double rounding<double> = 0x1p-53;

/// |actual - expected| <= rounding<T> |expected| + error for every element.
template <class Values>
void expect_close(const Values& actual, const std::vector<double>& expected, double error, const char* what) {
  using T = typename Values::value_type;
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double value = static_cast<double>(actual[i]);
    ASSERT_LE(std::abs(value - expected[i]), 1.01 * rounding<T> * std::abs(expected[i]) + error)
        << what << "[" << i << "] is " << value << ", expected " << expected[i];
  }
}

template <class Values>
bool same_bits(const Values& a, const Values& b) {
  using T = typename Values::value_type;
  settle();
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace ztrain::test
