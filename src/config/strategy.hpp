#pragma once
// Sharding strategies as data. A strategy is one row of the table in strategy.cpp, from which the deck's
// legal values and their documentation come. No code branches on a strategy's name.

#include <string_view>
#include <vector>

namespace ztrain::config {

/// Says what is cut over the shard group (shard x context), and how long copies live. ZeRO: Rajbhandari et
/// al., "ZeRO: memory optimizations toward training trillion parameter models", 2020. FSDP: Zhao et al.,
/// "PyTorch FSDP: experiences on scaling fully sharded data parallel", 2023.
struct Strategy {
  std::string_view name;
  bool optimizer_sharded = false;  ///< master weights and moments are shards; each rank steps its own
  /// By default each micro-batch's gradient is reduced into a sharded accumulator.
  bool gradients_sharded = false;
  bool parameters_sharded = false;  ///< parameters are shards between steps, gathered for use
  /// The gathered copy is dropped after forward and gathered again for backward.
  bool reshard_after_forward = false;
  /// In a deck that does not set the mesh, shards stay within a node and copies go across.
  bool within_node = false;
  std::vector<std::string_view> aliases{};  ///< other names in decks, in any case
  std::string_view doc{};                   ///< one sentence, which the documentation prints after "NAME: "
};

/// Returns the strategy of this canonical name. Throws Error naming the known ones.
const Strategy& find_strategy(std::string_view name);
const std::vector<Strategy>& strategies();

}  // namespace ztrain::config
