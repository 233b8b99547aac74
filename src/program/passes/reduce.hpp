#pragma once
// Gradients on their way from a micro-batch's flat buffer to the sum that the optimizer reads.

#include <string>
#include <vector>

#include "program/ops/emit.hpp"
#include "program/passes/unit_state.hpp"

namespace ztrain::program {

struct ReduceOptions {
  /// Every micro-batch's gradient is reduced into the shard accumulators; otherwise once, after the last.
  bool every_micro = true;
  /// A reduction of more elements (over all shards) is cut into several, each with a smaller workspace; 0:
  /// never.
  std::int64_t bucket_elements = 0;
  /// Bits of the codes in which gradients go to the owners of their shards, 4 or 8; 0: they go in the reduce
  /// dtype. Each rank's gradient is rounded to codes, also if its unit is not cut. ZeRO++'s qgZ (Wang et al.,
  /// 2023).
  std::int64_t code_bits = 0;
  /// Sums over copies of shards are left to sign_sums.hpp: gradients of units with sign_axes are terms, and
  /// none of these is whole.
  bool sums_signs = false;
  /// What a reduction works on stays during the next backward, which else would wait for its memory.
  bool overlap = true;
};

/// The reduced gradient of each unit, summed over its UnitCut::reduce_axes: this rank's shard, and the whole
/// flat range where the optimizer is not sharded.
struct ReducedGradient {
  TensorId slice = no_tensor;
  TensorId whole = no_tensor;
};

/// Returns what the optimizer reads, which steps all or a shard, and appends how it comes about.
TensorId whole_gradient(Program& program, const Cut& cut, int unit, TensorId slice, Action action);

/// A unit's flat gradient of one micro-batch (or of all).
struct GradientBuffer {
  int unit = 0;
  int first = -1, last = -1;              ///< spans that write it
  int first_micro = -1, last_micro = -1;  ///< their micro-batches
  bool final = false;                     ///< the last reduction of its unit
  TensorId tensor = no_tensor;
};

class GradientReducer {
 public:
  GradientReducer(const Cut& cut, const ReduceOptions& options) : cut_(cut), options_(options) {
    accumulators_.assign(cut.layout.units().size(), no_tensor);
  }

  /// Padding between and after parameters is reduced with the rest: it must hold something, and that is zero.
  void zero_gaps(Program& program, const GradientBuffer& buffer) const;
  /// Appends the reduction of a buffer that is complete. The unit's reduced gradient after the final one, no
  /// tensors before. Of a unit of two stages it has yet to be joined.
  ReducedGradient reduce(Program& program, const GradientBuffer& buffer);
  /// To be called behind all turns, with what reduce gave: each of the two stages sends the other its sum,
  /// and both add them up, which gives both the same bits.
  void join_stages(Program& program, int unit, ReducedGradient& gradient) const;
  /// To be called after the backward that may go on beside the last reductions, and before a forward: ends
  /// the lives of what they work on.
  void release_held(Program& program);

 private:
  struct Held {
    TensorId tensor;
    int unit;
  };
  const FlatUnit& flat(int unit) const { return cut_.layout.unit(unit); }
  void hold(const Program& program, std::size_t first_op, TensorId slice, int unit);
  TensorId widened(Program& program, const GradientBuffer& buffer, Action action) const;
  void scatter(Program& program, const GradientBuffer& buffer, TensorId& slice) const;
  /// One exchange of codes. `given` holds the codes that this rank sends, and `taken` those that it receives;
  /// on one rank both are the same tensor. `sums` holds the node's sums, or is no_tensor at the last hop.
  struct Hop {
    AxisSet axes;
    TensorId given = no_tensor, taken = no_tensor, sums = no_tensor;
  };
  struct Codes {
    std::int64_t count = 0;  ///< elements of each slot
    std::vector<Hop> hops;
  };
  std::vector<AxisSet> axes_of_hops(int unit) const;
  Codes add_codes(Program& program, int unit, std::int64_t count) const;
  void sum_codes(Program& program, int unit, const Slots& from, TensorId to, bool accumulate, Codes& codes,
                 Action action) const;
  AxisSet copies(int unit) const { return copying_axes(cut_, unit); }
  bool of_two_stages(int unit) const { return cut_.units[static_cast<std::size_t>(unit)].other_rank >= 0; }
  void sum_over_copies(Program& program, TensorId slice, AxisSet axes, const std::string& name,
                       Action action) const;

  const Cut& cut_;
  ReduceOptions options_;
  std::vector<TensorId> accumulators_;  ///< reduced shard by unit
  std::vector<Held> held_;              ///< what the last reductions work on
};

}  // namespace ztrain::program
