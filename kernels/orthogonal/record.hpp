#pragma once
// The op that orthogonalises matrices (kernel_interface/orthogonal.hpp).

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/matrix_pieces.hpp"
#include "kernels/record.hpp"

namespace ztrain {

/// x, flat -> y, as many elements, which are zero but for the pieces of these matrices.
struct Orthogonalise {
  static constexpr std::string_view op = "orthogonalise";
  enum In : std::size_t { x };
  enum Out : std::size_t { y, workspace };
  static constexpr Count reads = 1, writes = 2;
  std::vector<OrthogonalMatrix> matrices;
  std::vector<MatrixPiece> pieces;
  std::int64_t workspace_bytes = 0;  ///< enough for the matrices of any rank
  std::int64_t over = 0;             ///< bits of the axes whose ranks orthogonalise other matrices of x
  static constexpr auto fields() {
    using O = Orthogonalise;
    return std::tuple{Given{"matrices", &O::matrices}, Given{"pieces", &O::pieces},
                      Given{"workspace_bytes", &O::workspace_bytes}, Given{"over", &O::over}};
  }
};

}  // namespace ztrain
