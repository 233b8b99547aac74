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
  /// Between its uses in a step a unit is kept as a copy that is sharded over only MeshShape::inner
  /// neighbours: all gathers but its first stay among them. ZeRO++'s hpZ (Wang et al., 2023); the
  /// integer values of FSDP2's reshard_after_forward.
  bool secondary_shards = false;
  /// Bits of the codes in which units are gathered, 4 or 8; 0: values are sent as they are. Ops read the
  /// decoded values, on one rank too, so that results depend on no axis of the mesh but tensor. ZeRO++'s qwZ
  /// (Wang et al., 2023).
  std::int64_t gather_bits = 0;
  ReduceOptions reduce;
};

struct Sharded {
  Program program;
  std::vector<ReducedGradient> gradients;  ///< by unit; empty for a program without backward
};

Sharded shard(Expanded expanded, const Cut& cut, const std::vector<UnitState>& states,
              const ShardOptions& options);

}  // namespace ztrain::program
