#pragma once
// Gives sizes and constants of the kernel that orthogonalises matrices. The kernel takes five steps of a
// Newton-Schulz iteration, from the matrix divided by its norm. Jordan et al., "Muon: An optimizer for hidden
// layers in neural networks" (2024):
//   X = X / |X|,  five times: A = X X^T,  X = (a + b A + c A^2) X

#include <algorithm>
#include <cstdint>

#include "base/dtype.hpp"
#include "base/matrix_pieces.hpp"
#include "base/shape.hpp"
#include "kernel_interface/kernel_workspace.hpp"

namespace ztrain {

inline constexpr int orthogonal_steps = 5;
/// Jordan's a, b and c: the slope at 0 is large, and singular values end between about 0.7 and 1.2.
inline constexpr double orthogonal_a = 3.4445, orthogonal_b = -4.7750, orthogonal_c = 2.0315;
/// Least norm that a matrix is divided by.
inline constexpr double orthogonal_eps = 1e-7;

/// Offsets, in bytes, of the parts of a matrix's workspace. The matrix itself is at 0.
struct OrthogonalPlaces {
  std::int64_t next, gram, square, sums, gemm;
  std::int64_t end;  ///< bytes of the whole workspace
};
constexpr OrthogonalPlaces orthogonal_places(std::int64_t rows, std::int64_t cols, DType type,
                                             Target target) {
  const std::int64_t dim = std::min(rows, cols), other = std::max(rows, cols);
  const auto bytes = [&](std::int64_t count) { return round_up(count * size_of(type), 256); };
  OrthogonalPlaces p{};
  p.next = bytes(rows * cols);
  p.gram = p.next + bytes(rows * cols);
  p.square = p.gram + bytes(dim * dim);
  p.sums = p.square + bytes(dim * dim);
  p.gemm = p.sums + round_up((rows + 1) * std::int64_t{8}, 256);
  p.end = p.gemm + std::max({gemm_workspace_bytes(dim, dim, other, type, type, target),
                             gemm_workspace_bytes(dim, dim, dim, type, type, target),
                             gemm_workspace_bytes(rows, cols, dim, type, type, target)});
  return p;
}

/// Floating-point operations for one matrix.
constexpr double orthogonal_flops(std::int64_t rows, std::int64_t cols) {
  const auto d = static_cast<double>(std::min(rows, cols)), n = static_cast<double>(std::max(rows, cols));
  return orthogonal_steps * (4 * d * d * n + 2 * d * d * d);
}

}  // namespace ztrain
