#include "job/memory_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/table.hpp"
#include "base/text.hpp"
#include "plan/memory.hpp"

namespace ztrain::job {

namespace {

std::string snapshot_line(const program::Program& train) {
  std::int64_t bytes = 0;
  for (const program::Tensor& t : train.tensors)
    if (t.category == program::Category::snapshot) bytes += t.bytes();
  if (bytes == 0) return "";
  return fmt::format(
      "  besides, in the host's memory: {} for copies that checkpoints are written of, or that audits go "
      "back to\n",
      format_bytes(bytes));
}

}  // namespace

std::string memory_table(const program::Program& train, std::int64_t persistent_bytes,
                         std::int64_t transient_bytes) {
  Table table({"memory per rank", "kept", "within a step, at its peak"});
  for (const plan::MemoryRow& row : plan::memory_rows(train))
    table.row({row.category, format_bytes(row.persistent_bytes), format_bytes(row.peak_bytes)});
  table.rule();
  table.row({"arena", format_bytes(persistent_bytes), format_bytes(transient_bytes)});
  const program::TierPlan& device = train.plan[static_cast<std::size_t>(program::Tier::device)];
  const double over = device.live_bytes > 0
                          ? 100.0 * static_cast<double>(device.transient_bytes - device.live_bytes) /
                                static_cast<double>(device.live_bytes)
                          : 0.0;
  return table.text(2) +
         fmt::format(
             "  total {}; largest sum of live bytes in a step {}, the plan's extent is {:.2f}% above\n{}",
             format_bytes(persistent_bytes + transient_bytes), format_bytes(device.live_bytes), over,
             snapshot_line(train));
}

bool is_offloaded(const program::Program& train) {
  return std::ranges::any_of(train.tensors, [](const program::Tensor& t) {
    return t.tier != program::Tier::device && t.category != program::Category::snapshot;
  });
}

}  // namespace ztrain::job
