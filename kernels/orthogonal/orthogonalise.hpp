#pragma once
// Matrices that lie in pieces in a flat array, orthogonalised one after the other
// (kernel_interface/orthogonal.hpp).

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "kernel_interface/orthogonal.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// T in {float, bf16, f16, double}: the type of x, y and of all matrices between; products are summed in
/// acc_t<T>. A matrix gives the same bits wherever its pieces lie.
template <class T>
class Orthogonaliser {
 public:
  /// The pieces of each matrix are some of `pieces`.
  Orthogonaliser(Exec& exec, std::vector<OrthogonalMatrix> matrices, std::vector<MatrixPiece> pieces);

  /// workspace: orthogonal_places().end bytes of the matrix that needs most, aligned to 256.
  void run(Exec& exec, Vector<const T> x, Vector<T> y, Vector<std::byte> workspace);
  /// One of its products, for people; null: it has no matrix.
  const Gemm* product() const;

 private:
  /// X X^T or X^T X, whichever is smaller, its square, and the product of their polynomial and X.
  struct Products {
    std::unique_ptr<Gemm> gram, square, next;
  };

  std::vector<OrthogonalMatrix> matrices_;
  std::vector<MatrixPiece> pieces_;
  std::map<std::pair<std::int64_t, std::int64_t>, Products> products_;  ///< by shape
};

}  // namespace ztrain::kernels
