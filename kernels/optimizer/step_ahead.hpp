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

/// A step of the host in two parts, `take` and `settle`. Threads may share its blocks as HostOptimizerStep's.
class StepAhead {
 public:
  /// elements: of each array, and of its copy. Throws Error unless the pieces lie one after another.
  StepAhead(std::shared_ptr<HostOptimizerStep> step, std::vector<KeptArray> kept,
            std::vector<OptimizerPiece> pieces, std::int64_t elements);

  std::int64_t blocks() const { return step_->blocks(); }
  /// Copies blocks [begin, end) and the padding after them, and steps them as if nothing were clipped. The
  /// scalars are complete but for the norm.
  void take(std::int64_t begin, std::int64_t end, StepScalars scalars) const;
  /// Lets the steps of `take` stand if the norm clipped nothing. Otherwise restores the blocks and, unless
  /// the step is skipped, steps them as the complete scalars say.
  void settle(std::int64_t begin, std::int64_t end, const StepScalars& scalars) const;

 private:
  /// Returns the first element to copy with a block: the block's own, or 0 for the first block.
  std::int64_t begin_of(std::int64_t block) const;
  /// Calls copy(array, first byte, bytes) for each array that is kept.
  template <class Copy>
  void each_array(std::int64_t begin, std::int64_t end, const Copy& copy) const;

  std::shared_ptr<HostOptimizerStep> step_;
  std::vector<KeptArray> kept_;
  std::vector<OptimizerPiece> pieces_;
  std::vector<std::int64_t> first_blocks_;  ///< number of blocks before each piece, and of all blocks
  std::int64_t elements_;
};

}  // namespace ztrain::kernels
