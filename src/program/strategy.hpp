#pragma once
// Sharding strategies as data. Nothing below branches on a strategy's name.

#include <string_view>
#include <vector>

namespace ztrain::program {

/// What is cut over the shard group (shard x context), and how long copies live.
/// ZeRO: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", 2020.
/// FSDP: Zhao et al., "PyTorch FSDP: experiences on scaling fully sharded data parallel", 2023.
struct Strategy {
  std::string_view name;
  bool optimizer_sharded = false;  ///< master weights and moments are shards; each rank steps its own
  bool gradients_sharded =
      false;  ///< by default each micro-batch's gradient is reduced into a sharded accumulator
  bool parameters_sharded = false;  ///< parameters are shards between steps, gathered for use
  bool reshard_after_forward =
      false;  ///< the gathered copy is dropped after forward and gathered again for backward
};

/// Throws Error naming the known strategies. HYBRID_SHARD is FULL_SHARD on a mesh with replicate > 1.
const Strategy& find_strategy(std::string_view name);
const std::vector<Strategy>& strategies();

}  // namespace ztrain::program
