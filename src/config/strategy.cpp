#include "config/strategy.hpp"

#include <string>

#include "base/error.hpp"

namespace ztrain::config {

const std::vector<Strategy>& strategies() {
  static const std::vector<Strategy> table{
      {.name = "NO_SHARD", .aliases = {"zero0", "ddp"}, .doc = "nothing is sharded."},
      {.name = "zero1", .optimizer_sharded = true, .doc = "optimizer state is sharded."},
      {.name = "zero2",
       .optimizer_sharded = true,
       .gradients_sharded = true,
       .doc = "gradients too; parameters stay whole."},
      {.name = "SHARD_GRAD_OP",
       .optimizer_sharded = true,
       .gradients_sharded = true,
       .parameters_sharded = true,
       .doc = "as zero2, and parameters are sharded between steps."},
      {.name = "FULL_SHARD",
       .optimizer_sharded = true,
       .gradients_sharded = true,
       .parameters_sharded = true,
       .reshard_after_forward = true,
       .aliases = {"zero3"},
       .doc = "parameters too, gathered unit by unit for forward and again for backward."},
      {.name = "HYBRID_SHARD",
       .optimizer_sharded = true,
       .gradients_sharded = true,
       .parameters_sharded = true,
       .reshard_after_forward = true,
       .within_node = true,
       .doc = "FULL_SHARD within a node, copies across nodes, unless the mesh says otherwise."},
  };
  return table;
}

const Strategy& find_strategy(std::string_view name) {
  for (const Strategy& s : strategies())
    if (s.name == name) return s;
  std::string known;
  for (const Strategy& s : strategies()) known += (known.empty() ? "" : ", ") + std::string(s.name);
  fail("'{}' is not a sharding strategy; known: {}", name, known);
}

}  // namespace ztrain::config
