#include "plan/memory.hpp"

#include <algorithm>
#include <numeric>

#include "base/shape.hpp"
#include "config/validate/validate.hpp"
#include "layout/comm_cost.hpp"
#include "optim/optimizer.hpp"

namespace ztrain::plan {
namespace {

using program::Program;
using program::Tensor;
using program::Tier;

bool holds_bytes(const Tensor& t, Tier tier) {
  return t.base == program::no_tensor && t.tier == tier;
}

/// The op at which the largest sum of transient bytes is alive.
std::size_t peak_position(const Program& p, Tier tier) {
  std::vector<std::int64_t> change(p.ops.size() + 1, 0);
  for (const Tensor& t : p.tensors) {
    if (!holds_bytes(t, tier) || t.persistent || t.first < 0) continue;
    change[at(t.first)] += t.bytes();
    change[at(t.last) + 1] -= t.bytes();
  }
  std::size_t where = 0;
  std::int64_t live = 0, peak = -1;
  for (std::size_t i = 0; i < p.ops.size(); ++i) {
    live += change[i];
    if (live > peak) peak = live, where = i;
  }
  return where;
}

/// Groups of one rank copy nothing through the host.
std::int64_t staging_of(const Program& p, const program::Op& op) {
  const int ranks = p.mesh.size(op.comm.axes);
  if (!op.communicates() || ranks == 1) return 0;
  const SumGroup group = sum_group(p.mesh, op.comm.axes);
  const auto in = [&]() -> const Tensor& { return p.tensor(op.inputs.at(0)); };
  const auto out = [&]() -> const Tensor& { return p.tensor(op.outputs.at(0)); };
  switch (op.comm.kind) {
    case program::CommKind::all_gather:
      return all_gather_staging(ranks, in().bytes());
    case program::CommKind::reduce_scatter:
      return reduce_scatter_staging(group, in().dtype, out().dtype, elements(out().shape));
    case program::CommKind::all_reduce:
      return all_reduce_staging(group, out().dtype, elements(out().shape));
    case program::CommKind::all_to_all:
    case program::CommKind::all_to_all_rows:
    case program::CommKind::shift:
      return staged_part(in().bytes()) + staged_part(out().bytes());
    case program::CommKind::broadcast:
    case program::CommKind::send:
      return staged_part(in().bytes());
    case program::CommKind::recv:
      return staged_part(out().bytes());
    case program::CommKind::none:
      return 0;
  }
  return 0;
}

}  // namespace

std::vector<MemoryRow> memory_rows(const Program& p, Tier tier) {
  std::array<MemoryRow, program::category_count> rows;
  const auto peak = static_cast<program::OpId>(peak_position(p, tier));
  for (const Tensor& t : p.tensors) {
    if (!holds_bytes(t, tier)) continue;
    MemoryRow& row = rows[at(t.category)];
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

std::int64_t RankMemory::persistent(Tier tier) const {
  std::int64_t bytes = 0;
  for (const ProgramMemory& p : programs) bytes = std::max(bytes, p.tiers[at(tier)].persistent_bytes);
  return bytes;
}

std::int64_t RankMemory::transient(Tier tier) const {
  std::int64_t bytes = 0;
  for (const ProgramMemory& p : programs) bytes = std::max(bytes, p.tiers[at(tier)].transient_bytes);
  return bytes;
}

std::int64_t copied_bytes(const RankMemory& memory) {
  std::int64_t bytes = 0;
  for (const MemoryRow& row : memory.programs.front().rows[at(Tier::host)])
    if (row.category == name_of(program::Category::snapshot)) bytes += row.persistent_bytes;
  return bytes;
}

std::int64_t snapshot_bytes(std::int64_t own, std::int64_t before, int ranks) {
  return 2 * (own + before) + (before > 0 ? 2 * snapshot_part * ranks : 0);
}

double optimizer_bytes_of(const config::Deck& d, bool by_matrix, std::int64_t copies) {
  const config::Optimizer& o = d.optimizer;
  const config::Precision& p = d.precision;
  double bytes = p.master == p.parameters ? 0 : static_cast<double>(size_of(p.master));
  const optim::Info& named = optim::find(o.name);
  const optim::Info& rule = by_matrix || named.others.empty() ? named : optim::find(named.others);
  for (const optim::StateInfo& state : optim::kept_states(rule, o.settings(), p.master, d.mesh.replicate > 1))
    bytes +=
        static_cast<double>(size_of(state.dtype.value_or(p.moments)) * (state.of_each_copy ? copies : 1)) /
        static_cast<double>(state.granule);
  return bytes;
}

Trained trained_of(const Layout& layout) {
  Trained trained;
  for (const ParameterShape& p : layout.parameters()) {
    trained.all += p.trainable ? elements(p.shape) : 0;
    trained.by_matrix += p.by_matrix ? elements(p.shape) : 0;
  }
  return trained;
}

double checkpoint_bytes(const config::Deck& d, std::int64_t parameters, const Trained& trained) {
  const config::Precision& p = d.precision;
  const double separate = p.master == p.parameters ? 0 : static_cast<double>(size_of(p.parameters));
  const auto some = static_cast<double>(trained.all),
             all = config::saves_frozen(d) ? static_cast<double>(parameters) : some,
             others = static_cast<double>(trained.all - trained.by_matrix);
  return all * static_cast<double>(size_of(p.parameters)) - some * separate +
         (some - others) * optimizer_bytes_of(d, true, d.mesh.replicate) +
         others * optimizer_bytes_of(d, false, d.mesh.replicate);
}

std::int64_t staging_bytes(const std::vector<const Program*>& programs) {
  std::array<std::int64_t, program::stream_count> largest{};
  for (const Program* p : programs)
    for (const program::Op& op : p->ops) {
      std::int64_t& bytes = largest[at(op.stream)];
      bytes = std::max(bytes, staging_of(*p, op));
    }
  return std::accumulate(largest.begin(), largest.end(), std::int64_t{0});
}

RankMemory memory_of(const std::vector<const Program*>& programs) {
  RankMemory memory;
  for (const Program* p : programs) {
    memory.rank = p->rank;
    ProgramMemory m;
    m.name = p->name;
    for (int t = 0; t < program::tier_count; ++t) {
      m.tiers[at(t)] = p->plan[t];
      m.rows[at(t)] = memory_rows(*p, static_cast<Tier>(t));
    }
    memory.programs.push_back(std::move(m));
  }
  return memory;
}

}  // namespace ztrain::plan
