// Compares orthogonalised matrices with serial float64, and their bits for different places of the pieces.

#include <gtest/gtest.h>

#include "kernels/orthogonal/orthogonalise.hpp"
#include "kernels/orthogonal/reference.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_orthogonal_test {
namespace {

using namespace ztrain::test;

struct Matrices {
  std::vector<OrthogonalMatrix> matrices;
  std::vector<MatrixPiece> pieces;
};

/// Orthogonalises matrices in x. The output y is not zero before.
template <class T>
Array<T> run(const Matrices& given, const Array<T>& x) {
  TestExec exec;
  std::int64_t bytes = 0;
  for (const OrthogonalMatrix& m : given.matrices)
    bytes = std::max(bytes, orthogonal_places(m.rows, m.cols, dtype_of<T>(), build_target()).end);
  Array<std::byte> workspace(static_cast<std::size_t>(bytes));
  Array<T> y(x.size(), T(9.0f));
  Orthogonaliser<T> kernel(*exec, given.matrices, given.pieces);
  kernel.run(*exec, view(x), view(y), view(workspace));
  return y;
}

/// Returns matrices that lie one behind the other, each in one piece.
Matrices in_a_row(const std::vector<std::pair<std::int64_t, std::int64_t>>& shapes) {
  Matrices record;
  std::int64_t begin = 0;
  for (const auto& [rows, cols] : shapes) {
    record.matrices.push_back({rows, cols, std::ssize(record.pieces), 1, 1});
    record.pieces.insert(record.pieces.end(), 2, {begin, rows * cols});
    begin += rows * cols;
  }
  return record;
}

template <class T>
struct Orthogonal : ::testing::Test {};
TYPED_TEST_SUITE(Orthogonal, FloatTypes);

/// Elements of the result are at most about 1. Small singular values grow by a factor of up to 490, and so
/// do their rounding errors.
template <class T>
constexpr double allowed = std::is_same_v<T, double>  ? 1e-12
                           : std::is_same_v<T, float> ? 1e-5
                           : std::is_same_v<T, f16>   ? 1e-2
                                                      : 8e-2;

TYPED_TEST(Orthogonal, MatricesFollowTheReference) {
  using T = TypeParam;
  const std::vector<std::pair<std::int64_t, std::int64_t>> shapes{{24, 24}, {16, 40}, {40, 16}, {1, 7},
                                                                  {7, 1},   {33, 70}, {1, 1}};
  const Matrices record = in_a_row(shapes);
  const MatrixPiece& last = record.pieces.back();
  const auto x = random<T>(last.begin + last.count, 5, 1e-3), y = run<T>(record, x);
  for (const OrthogonalMatrix& m : record.matrices) {
    const std::int64_t begin = record.pieces[static_cast<std::size_t>(m.begin)].begin;
    std::vector<double> matrix;
    for (std::int64_t i = begin; i < begin + m.rows * m.cols; ++i)
      matrix.push_back(static_cast<double>(x[static_cast<std::size_t>(i)]));
    const std::vector<double> expected =
        reference::orthogonalised(matrix, static_cast<std::size_t>(m.rows), static_cast<std::size_t>(m.cols));
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(static_cast<double>(y[static_cast<std::size_t>(begin) + i]), expected[i], allowed<T>)
          << m.rows << " x " << m.cols << " [" << i << "]";
  }
}

/// A matrix of 24 x 40 whose columns are cut in two, each part in two shards, beside one that is not taken.
TYPED_TEST(Orthogonal, PiecesAnywhereGiveTheSameBits) {
  using T = TypeParam;
  constexpr std::int64_t rows = 24, cols = 40, half = cols / 2, block = 512, shard = 256;
  const auto matrix = random<T>(rows * cols, 6);
  const auto whole = run<T>(in_a_row({{rows, cols}}), matrix);
  Matrices cut;
  cut.matrices = {{rows, cols, 0, 4, 4}};
  for (const std::int64_t part : {0, 1})
    for (const std::int64_t first : {std::int64_t{0}, shard})
      cut.pieces.push_back(
          {part * block + first, std::min(shard, rows * half - first), first, half, cols, part * half});
  cut.pieces.insert(cut.pieces.end(), cut.pieces.begin(), cut.pieces.begin() + 4);
  Array<T> x(2 * block + shard, T(3.0f)), expected(x.size(), T(0.0f));
  for (std::int64_t i = 0; i < 2 * rows * half; ++i) {
    const std::int64_t part = i / (rows * half), e = i % (rows * half);
    const auto from = static_cast<std::size_t>(e / half * cols + part * half + e % half),
               to = static_cast<std::size_t>(part * block + e);
    x[to] = matrix[from];
    expected[to] = whole[from];
  }
  EXPECT_EQ(run<T>(cut, x), expected);
}

TYPED_TEST(Orthogonal, ZerosStayZeros) {
  using T = TypeParam;
  const Array<T> zeros(12 * 5, T(0.0f));
  EXPECT_EQ(run<T>(in_a_row({{12, 5}}), zeros), zeros);
}

}  // namespace
}  // namespace ztrain::kernels::kernels_orthogonal_test
