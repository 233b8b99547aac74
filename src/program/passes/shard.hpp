#pragma once
// The data-parallel sharding pass: gives parameters and gradients their places in flat buffers, and inserts
// Gather, Release and Reduce around the units' use. What a strategy means is Strategy, as data.

#include <vector>

#include "program/passes/expand.hpp"
#include "program/passes/gather_plan.hpp"
#include "program/passes/reduce.hpp"
#include "program/passes/unit_state.hpp"

namespace ztrain::program {

struct ShardOptions {
  GatherOptions gather;
  /// Between its uses in a step a unit is kept as a copy that is sharded over MeshShape::inner
  /// neighbours alone: all gathers but its first stay among them. ZeRO++'s hpZ (Wang et al., 2023); the
  /// integer values of FSDP2's reshard_after_forward.
  bool secondary_shards = false;
  ReduceOptions reduce;
};

struct Sharded {
  Program program;
  std::vector<ReducedGradient> gradients;  ///< by unit; empty for a program without backward
};

Sharded shard(Expanded expanded, const Cut& cut, const std::vector<UnitState>& states,
              const ShardOptions& options);

}  // namespace ztrain::program
