#include "program/strategy.hpp"

#include <string>

#include "base/error.hpp"

namespace ztrain::program {

const std::vector<Strategy>& strategies() {
  // name, optimizer, gradients, parameters sharded; reshard after forward
  static const std::vector<Strategy> table{
      {"NO_SHARD", false, false, false, false}, {"zero1", true, false, false, false},
      {"zero2", true, true, false, false},      {"SHARD_GRAD_OP", true, true, true, false},
      {"FULL_SHARD", true, true, true, true},   {"HYBRID_SHARD", true, true, true, true},
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

}  // namespace ztrain::program
