#pragma once
// Records of matrices that lie in pieces in flat arrays, such as the gathered shards of all ranks. Passes
// write these records and kernels read them; records of ops may name nothing above this layer.

#include <cstdint>

namespace ztrain {

/// A run of a flat array. With e = first + i, element begin + i of the array is element
/// (e / run) * stride + offset + e % run of the matrix.
struct MatrixPiece {
  std::int64_t begin = 0, count = 0, first = 0, run = 1, stride = 1, offset = 0;
  bool operator==(const MatrixPiece&) const = default;
};
/// A matrix that is orthogonalised. In the list of all pieces, from `begin` on, stand its `pieces` in x and
/// then its `copies` in y.
struct OrthogonalMatrix {
  std::int64_t rows = 0, cols = 0, begin = 0, pieces = 0, copies = 0;
  bool operator==(const OrthogonalMatrix&) const = default;
};

}  // namespace ztrain
