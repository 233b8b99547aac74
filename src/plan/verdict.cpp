// Whether a job fits: what its ranks and nodes need against what there is.

#include <algorithm>

#include "layout/comm_cost.hpp"
#include "plan/cost.hpp"
#include "plan/setup.hpp"

namespace ztrain::plan {

double snapshots_on_node(const Cost& c) {
  if (c.deck.checkpoint.memory_copies == 0) return 0;
  const int ranks = std::min(c.ranks, c.machine.ranks_per_node);
  std::int64_t largest = 0;
  for (const RankMemory& memory : c.memory) largest = std::max(largest, copied_bytes(memory));
  const std::int64_t of_node = largest * ranks;
  return static_cast<double>(snapshot_bytes(of_node, c.ranks > ranks ? of_node : 0, ranks));
}

double checkpoints_on_node(const Cost& c) {
  return static_cast<double>(checkpoint_room) * std::min(c.ranks, c.machine.ranks_per_node);
}

bool knows_its_machine(const Cost& c) {
  return !c.machine.peak_assumed || c.machine.device_memory > 0;
}

bool knows_its_time(const Cost& c) {
  return c.deck.run.epochs == 0 && knows_its_machine(c);
}

Verdict verdict_of(const Cost& c) {
  const Machine& m = c.machine;
  const auto held = [&](program::Tier tier) { return static_cast<double>(c.largest(tier).total(tier)); };
  const double device = held(program::Tier::device) + m.outside_memory, host = held(program::Tier::host);
  const double on_node = std::min(c.ranks, m.ranks_per_node);
  Verdict v;
  v.device_limit = m.device_memory;
  v.node_limit = m.host_memory;
  v.device_needed = device;
  v.node_needed =
      on_node * (m.device_memory > 0 ? host : host + device) + checkpoints_on_node(c) + snapshots_on_node(c);
  return v;
}

}  // namespace ztrain::plan
