#pragma once
// Steps that the host takes before the norm of the gradients is known (SuperOffload, Lian et al., 2025), with
// copies of what they change, so that they can be taken back bit by bit.

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/optimizer/optimizer_host.hpp"

namespace ztrain::kernels {

/// An array that a step changes, and room for a copy of it.
struct KeptArray {
  std::byte* stepped = nullptr;
  std::byte* copy = nullptr;
  std::int64_t item_bytes = 0;
  std::int64_t granule = 1;  ///< elements that share an item
};

/// The blocks are those of HostOptimizerStep, and threads may share them in the same way.
class StepAhead {
 public:
  /// elements: of the arrays, all of which are kept. Throws Error unless the pieces lie one after another.
  StepAhead(std::shared_ptr<HostOptimizerStep> step, std::vector<KeptArray> kept,
            std::vector<OptimizerPiece> pieces, std::int64_t elements);

  std::int64_t blocks() const { return step_->blocks(); }
  /// Keeps blocks [begin, end) and the padding behind them, and steps them as if nothing were clipped. Of the
  /// scalars all is known but the norm.
  void take(std::int64_t begin, std::int64_t end, StepScalars scalars) const;
  /// With the scalars of the whole step: if the steps of `take` do not stand, restores the blocks and steps
  /// them as the scalars say, if at all.
  void settle(std::int64_t begin, std::int64_t end, const StepScalars& scalars) const;

 private:
  /// Returns where what belongs to a block begins: its first element, or the array's for the first block.
  std::int64_t begin_of(std::int64_t block) const;
  /// Calls copy(array, first byte, bytes) for each array that is kept.
  template <class Copy>
  void each_array(std::int64_t begin, std::int64_t end, const Copy& copy) const;

  std::shared_ptr<HostOptimizerStep> step_;
  std::vector<KeptArray> kept_;
  std::vector<OptimizerPiece> pieces_;
  std::vector<std::int64_t> first_blocks_;  ///< by piece, and of all
  std::int64_t elements_;
};

}  // namespace ztrain::kernels
