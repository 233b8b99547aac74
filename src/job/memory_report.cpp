#include "job/memory_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/text.hpp"

namespace ztrain::job {

namespace {

/// What the train step has there, by the same rows as a plan's.
std::string tier_line(const program::Program& train, const plan::RankMemory& memory, program::Tier tier) {
  if (memory.total(tier) == 0) return "";
  std::vector<std::string> parts;
  for (const plan::MemoryRow& row : plan::memory_rows(train, tier)) {
    const bool snapshot = row.category == name_of(program::Category::snapshot);
    parts.push_back(fmt::format(
        "{} {}", format_bytes(row.persistent_bytes + row.peak_bytes),
        snapshot ? "for copies that checkpoints are written of, or that audits go back to" : row.category));
  }
  return fmt::format("  besides, {}: {}; an arena of {}\n",
                     tier == program::Tier::host ? "in the host's memory" : "on NVMe drives",
                     fmt::join(parts, ", "), format_bytes(memory.total(tier)));
}

}  // namespace

std::string memory_table(const program::Program& train, const plan::RankMemory& memory) {
  using program::Tier;
  const std::int64_t persistent_bytes = memory.persistent(Tier::device),
                     transient_bytes = memory.transient(Tier::device);
  Table table({"memory per rank", "kept", "within a step, at its peak"});
  for (const plan::MemoryRow& row : plan::memory_rows(train))
    table.row({row.category, format_bytes(row.persistent_bytes), format_bytes(row.peak_bytes)});
  table.rule();
  table.row({"arena", format_bytes(persistent_bytes), format_bytes(transient_bytes)});
  const program::TierPlan& device = train.plan[static_cast<std::size_t>(Tier::device)];
  const double over = device.live_bytes > 0
                          ? 100.0 * static_cast<double>(device.transient_bytes - device.live_bytes) /
                                static_cast<double>(device.live_bytes)
                          : 0.0;
  return table.text(2) +
         fmt::format(
             "  total {}; largest sum of live bytes in a step {}, the plan's extent is {:.2f}% above\n{}{}",
             format_bytes(persistent_bytes + transient_bytes), format_bytes(device.live_bytes), over,
             tier_line(train, memory, Tier::host), tier_line(train, memory, Tier::nvme));
}

bool is_offloaded(const program::Program& train) {
  return std::ranges::any_of(train.tensors, [](const program::Tensor& t) {
    return t.tier != program::Tier::device && t.category != program::Category::snapshot;
  });
}

}  // namespace ztrain::job
