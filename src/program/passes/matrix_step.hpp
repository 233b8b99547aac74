#pragma once
// Builds the step of a rule that needs whole matrices (optim::Info::others). Between the halves of the step,
// the ranks that share a unit's matrices gather them, and each rank orthogonalises some. A rank's results are
// zero for the matrices of other ranks, so a reduce-scatter gives every rank its part.

#include <map>

#include "kernels/orthogonal/record.hpp"
#include "program/passes/optimizer.hpp"

namespace ztrain::program {

/// Marks the parameters that the optimizer steps by whole matrices: trained matrices, except embeddings and
/// heads. Marks none if the optimizer's rule has no `others`.
void mark_matrices(model::Graph& graph, const OptimizerSpec& optimizer);

class MatrixSteps {
 public:
  explicit MatrixSteps(const Cut& cut) : cut_(cut) {}

  /// The ranks that share a unit's matrices. Each has a block of one array; all blocks have the same size.
  struct Group {
    AxisSet axes;  ///< none: each rank has all matrices whole
    std::vector<Coordinate> members;
    std::int64_t block = 0;
    int own = 0;  ///< index of this rank
  };
  Group group_of(const UnitState& state, int unit);

  /// Returns which matrices this rank orthogonalises, and where they lie in the blocks of all members.
  Orthogonalise record_of(const Group& group, int unit, DType type, Target target);

 private:
  /// A matrix in the blocks of all members.
  struct Found {
    OrthogonalMatrix shape;
    std::vector<MatrixPiece> sources, copies;
  };

  const Layout& layout_of(const Coordinate& at);
  bool sharded() const { return cut_.strategy.optimizer_sharded; }
  std::vector<Found> matrices_of(const Group& group, int unit);
  void find_in(const Group& group, int member, const Piece& piece, std::vector<Found>& matrices,
               std::map<std::int64_t, std::size_t>& index);

  const Cut& cut_;
  std::map<int, Layout> layouts_;  ///< of ranks with other parts of the tensor axis
};

/// Appends both halves of a unit's step and the ops between them. first and second: constants of the halves.
void append_matrix_step(Program& program, MatrixSteps& steps, const Cut& cut, const UnitState& state,
                        int unit, TensorId gradient, TensorId scalars, const OptimizerStep& first,
                        const OptimizerStep& second);

}  // namespace ztrain::program
