#pragma once
// Sharding strategies as data: a strategy is one row of the table in strategy.cpp, which the deck's legal
// values and their documentation come from. Nothing branches on a strategy's name.

#include <string_view>
#include <vector>

namespace ztrain::config {

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
      false;                 ///< the gathered copy is dropped after forward and gathered again for backward
  bool within_node = false;  ///< a deck that is silent about the mesh shards within a node and copies across
  std::vector<std::string_view> aliases{};  ///< other names in decks, in any case
  std::string_view doc{};                   ///< one sentence, as the documentation continues "NAME: "
};

/// By its canonical name; throws Error naming the known strategies.
const Strategy& find_strategy(std::string_view name);
const std::vector<Strategy>& strategies();

}  // namespace ztrain::config
