#pragma once
// The data-parallel sharding pass: gives parameters and gradients their places in flat buffers, and inserts
// Gather, Release and Reduce around the units' use. What a strategy means is Strategy, as data.

#include <vector>

#include "program/expand.hpp"
#include "program/unit_state.hpp"

namespace ztrain::program {

struct ShardOptions {
  int prefetch = 1;  ///< actions ahead of its use at which a unit's gather is issued
  /// Every micro-batch's gradient is reduced into the shard accumulators; otherwise once, after the last.
  bool reduce_every_micro = true;
};

/// The reduced gradient of each unit, summed over the whole data-parallel group: this rank's shard, and the
/// whole flat range where the optimizer is not sharded.
struct ReducedGradient {
  TensorId slice = no_tensor;
  TensorId whole = no_tensor;
};

struct Sharded {
  Program program;
  std::vector<ReducedGradient> gradients;  ///< by unit; empty for a program without backward
};

Sharded shard(Expanded expanded, const Cut& cut, const std::vector<UnitState>& states,
              const ShardOptions& options);

}  // namespace ztrain::program
