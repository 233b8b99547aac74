#include "train/memory_report.hpp"

#include <fmt/format.h>

#include <array>

#include "base/text.hpp"
#include "telemetry/console.hpp"

namespace ztrain::train {
namespace {

using program::Program;
using program::Tensor;

bool holds_bytes(const Tensor& t) {
  return t.base == program::no_tensor && t.tier == program::Tier::device;
}

/// The op at which the largest sum of transient bytes is alive.
std::size_t peak_position(const Program& p) {
  std::vector<std::int64_t> change(p.ops.size() + 1, 0);
  for (const Tensor& t : p.tensors) {
    if (!holds_bytes(t) || t.persistent || t.first < 0) continue;
    change[static_cast<std::size_t>(t.first)] += t.bytes();
    change[static_cast<std::size_t>(t.last) + 1] -= t.bytes();
  }
  std::size_t where = 0;
  std::int64_t live = 0, peak = -1;
  for (std::size_t i = 0; i < p.ops.size(); ++i) {
    live += change[i];
    if (live > peak) peak = live, where = i;
  }
  return where;
}

}  // namespace

std::vector<MemoryRow> memory_rows(const Program& p) {
  std::array<MemoryRow, program::category_count> rows;
  const auto peak = static_cast<program::OpId>(peak_position(p));
  for (const Tensor& t : p.tensors) {
    if (!holds_bytes(t)) continue;
    MemoryRow& row = rows[static_cast<std::size_t>(t.category)];
    if (t.persistent)
      row.persistent_bytes += t.bytes();
    else if (t.first >= 0 && t.first <= peak && peak <= t.last)
      row.peak_bytes += t.bytes();
  }
  std::vector<MemoryRow> used;
  for (std::size_t c = 0; c < rows.size(); ++c) {
    rows[c].category = name_of(static_cast<program::Category>(c));
    if (rows[c].persistent_bytes || rows[c].peak_bytes) used.push_back(rows[c]);
  }
  return used;
}

std::string memory_table(const Program& train, std::int64_t persistent_bytes, std::int64_t transient_bytes) {
  telemetry::Table table({"memory per rank", "kept", "within a step, at its peak"});
  for (const MemoryRow& row : memory_rows(train))
    table.row({row.category, format_bytes(static_cast<double>(row.persistent_bytes)),
               format_bytes(static_cast<double>(row.peak_bytes))});
  table.rule();
  table.row({"arena", format_bytes(static_cast<double>(persistent_bytes)),
             format_bytes(static_cast<double>(transient_bytes))});
  const program::TierPlan& plan = train.plan[static_cast<std::size_t>(program::Tier::device)];
  const double over = plan.live_bytes > 0
                          ? 100.0 * static_cast<double>(plan.transient_bytes - plan.live_bytes) /
                                static_cast<double>(plan.live_bytes)
                          : 0.0;
  return table.text(2) +
         fmt::format(
             "  total {}; largest sum of live bytes in a step {}, the plan's extent is {:.2f}% above\n",
             format_bytes(static_cast<double>(persistent_bytes + transient_bytes)),
             format_bytes(static_cast<double>(plan.live_bytes)), over);
}

}  // namespace ztrain::train
