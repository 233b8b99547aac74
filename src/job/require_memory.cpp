#include "job/require_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/shape.hpp"
#include "base/text.hpp"
#include "checkpoint/neighbours/node_folder.hpp"
#include "checkpoint/rank_group.hpp"
#include "config/validate/validate.hpp"
#include "job/memory_report.hpp"
#include "layout/comm_cost.hpp"
#include "layout/layout.hpp"
#include "memory/provider.hpp"
#include "plan/fit.hpp"
#include "plan/memory.hpp"

namespace ztrain::job {
namespace {

/// What one rank finds on its node, or on its GPU.
struct Finding {
  std::int64_t needed = 0;     ///< bytes of all ranks of the node or GPU
  std::int64_t available = 0;  ///< of the node or GPU, now; -1: unknown
  std::int64_t ranks = 1;      ///< on the node or GPU
  std::int64_t pinned = 0;     ///< of what is needed
  std::int64_t snapshots = 0;  ///< of what is needed, for files
  std::int64_t in_group = 0;   ///< 1: a control group bounds what is available

  bool fits() const { return available < 0 || needed <= available; }
};

/// All members are of 8 bytes: ranks exchange it as it is.
struct Findings {
  Finding gpu;  ///< nothing is needed of it where there is none
  Finding node;

  bool fit() const { return gpu.fits() && node.fits(); }
};

bool do_not_fit(const Findings& findings) {
  return !findings.fit();
}

/// Where ranks compute in the memory of their node.
std::int64_t total_of(const plan::RankMemory& memory) {
  return memory.total(program::Tier::device) + memory.total(program::Tier::host);
}

Finding finding(std::int64_t bytes, std::int64_t pinned, std::int64_t ranks,
                const memory::MachineMemory& limits) {
  return {.needed = bytes * ranks,
          .available = limits.total == 0 ? -1 : limits.available,
          .ranks = ranks,
          .pinned = pinned * ranks,
          .in_group = limits.in_group ? 1 : 0};
}

std::vector<Findings> findings_of_all(const runtime::Session& session, runtime::Device& device,
                                      const plan::RankMemory& memory, std::int64_t pinned,
                                      std::int64_t checkpoints = 0, std::int64_t snapshots = 0) {
  Findings mine;
  std::int64_t on_node = total_of(memory) + pinned;
  if (has_memory_of_its_own(device)) {
    const std::int64_t bytes = memory.total(program::Tier::device);
    on_node -= bytes;
    mine.gpu = finding(bytes, 0, ranks_on(session, device), device.memory().limits());
  }
  mine.node = finding(on_node, pinned, session.ranks_on_node(), memory::machine_memory());
  mine.node.needed += checkpoints + snapshots;
  mine.node.snapshots = snapshots;
  return runtime::of_all(session, mine);
}

/// Never throws: what it says stands in another message.
std::string advice(const config::Deck* deck, int ranks, const plan::Limits& limits) {
  const char* const general =
      "Use more nodes, sharding.strategy = \"FULL_SHARD\", recompute.mode = \"full\", a smaller batch.micro, "
      "or a smaller model";
  if (!deck) return general;
  // The plan of a deck that names no device is one for GPUs, until it is told otherwise.
  const std::string of_node =
      limits.device_memory == 0.0 && limits.host_memory
          ? fmt::format(" with --device-memory 0 --cluster.host_memory={:.3f}", *limits.host_memory / 1e9)
          : "";
  try {
    return plan::cheapest_fix_text({.deck = deck->path,
                                    .overrides = deck->overrides,
                                    .ranks = ranks,
                                    .vocabulary = deck->model.vocab_size,
                                    .limits = limits}) +
           fmt::format(". `ztrain plan`{} shows the whole account", of_node);
  } catch (const std::exception&) {
    return general;
  }
}

std::string table_of(const std::vector<const program::Program*>& programs, const program::Program& largest) {
  return memory_table(largest, plan::memory_of(programs));
}

std::string finding_text(const Findings& worst, const runtime::Device& device) {
  const bool gpu = !worst.gpu.fits();
  const Finding& f = gpu ? worst.gpu : worst.node;
  const auto part = [](std::int64_t bytes, const char* what) {
    return bytes == 0 ? "" : fmt::format(" ({} of it {})", format_bytes(bytes), what);
  };
  return fmt::format("{} on a {} need{} {}{}{}, of which {} are available{}", count_text(f.ranks, "rank"),
                     gpu ? device.name() : "node", f.ranks == 1 ? "s" : "", format_bytes(f.needed),
                     part(f.pinned, "to copy inputs and communication through"),
                     part(f.snapshots, "for snapshots, checkpoint.memory_copies"), format_bytes(f.available),
                     f.in_group != 0 ? memory::of_control_group : "");
}

std::string shortage(const std::string& what, const program::Job& job, const std::string& help) {
  return fmt::format(
      "the job does not fit: {}\n{}{}", what,
      table_of(job.programs.all(), job.trains() ? job.train() : job.evaluate()),
      job.trains() ? help : "Use more nodes, a smaller --batch or --sequence, or a narrower --dtype");
}

std::string shortage_of(const Findings& worst, const runtime::Device& device, const program::Job& job,
                        const config::Deck* deck, int ranks) {
  plan::Limits limits;
  const std::string what = finding_text(worst, device);
  if (!worst.gpu.fits()) {
    limits.device_memory = static_cast<double>(worst.gpu.available / worst.gpu.ranks);
    limits.outside_memory = 0.0;  // is in use already
  } else if (has_memory_of_its_own(device)) {
    return shortage(what, job,
                    "Use fewer ranks on a node, device.communicator = \"nccl\", which copies nothing through "
                    "the host, or a smaller batch.micro");
  } else {
    limits.ranks_per_node = static_cast<int>(worst.node.ranks);
    limits.device_memory = limits.outside_memory = 0.0;
    limits.host_memory = static_cast<double>(worst.node.available - worst.node.pinned);
  }
  limits.target = job.load().target;
  return shortage(what, job, advice(deck, ranks, limits));
}

std::string device_shortage(double needed, const program::Job& job, const config::Deck& deck, int ranks) {
  plan::Limits limits;
  limits.target = job.load().target;
  return shortage(
      fmt::format("a rank needs {}, {} of it outside of the plan (cluster.outside_memory), and "
                  "cluster.device_memory is {}",
                  format_decimal_bytes(needed), format_decimal_bytes(deck.cluster.outside_memory * 1e9),
                  format_decimal_bytes(deck.cluster.device_memory * 1e9)),
      job, advice(&deck, ranks, limits));
}

/// With audits ranks have room for copies of states as well that they do not save.
std::int64_t saved_by_this_rank(const program::Job& job) {
  const program::Program& p = job.load();
  if (owns(Coordinate(p.mesh, p.rank))) return plan::copied_bytes(plan::memory_of(job.programs.all()));
  std::int64_t bytes = 0;
  for (const program::UnitState& unit : job.tensors.units)
    for (const auto& [state, copy] : unit.snapshot)
      if (unit.is_of_each_copy(state)) bytes += p.tensor(copy).bytes();
  return bytes;
}

}  // namespace

bool has_memory_of_its_own(const runtime::Device& device) {
  return !device.identity().empty();
}

std::int64_t ranks_on(const runtime::Session& session, const runtime::Device& device) {
  const std::uint64_t mine = hash_text(session.host() + " " + device.identity());
  return std::ranges::count(runtime::of_all(session, mine), mine);
}

checkpoint::NodeRing ring_of(const runtime::Session& session) {
  std::vector<int> node_of;
  for (int rank = 0; rank < session.size(); ++rank) node_of.push_back(session.node_of(rank));
  return checkpoint::NodeRing(std::move(node_of));
}

std::int64_t snapshot_bytes_of_node(const runtime::Session& session, const program::Job& job,
                                    const config::Deck& deck) {
  if (deck.checkpoint.memory_copies == 0) return 0;
  const auto saved = checkpoint::Group::world().all_gather(saved_by_this_rank(job));
  const auto held = ring_of(session).held(session.node(), saved);
  return plan::snapshot_bytes(held.own, held.before, session.ranks_on_node());
}

void require_memory(const runtime::Session& session, runtime::Device& device, const program::Job& job,
                    std::int64_t pinned, const config::Deck* deck) {
  const plan::RankMemory memory = plan::memory_of(job.programs.all());
  const std::int64_t bytes =
      has_memory_of_its_own(device) ? memory.total(program::Tier::device) : total_of(memory);
  // Those that an earlier start has left make room for this one's.
  const std::int64_t snapshots = deck ? snapshot_bytes_of_node(session, job, *deck) : 0,
                     there = snapshots == 0 ? 0
                                            : checkpoint::bytes_of_run(deck->checkpoint.memory_folder,
                                                                       config::checkpoint_folder(*deck));
  const std::vector<Findings> all = findings_of_all(
      session, device, memory, pinned, session.ranks_on_node() * checkpoint_room, snapshots - there);
  const auto worst = std::find_if(all.begin(), all.end(), do_not_fit);
  const double needed = static_cast<double>(bytes) + (deck ? deck->cluster.outside_memory * 1e9 : 0);
  const bool device_fits =
      !deck || deck->cluster.device_memory <= 0 || needed <= deck->cluster.device_memory * 1e9;
  // Ranks differ by a few bytes of scalars: rank 0 decides for all.
  const std::string text = session.from_rank_0([&]() -> std::string {
    if (session.rank() != 0) return "";
    if (!device_fits) return device_shortage(needed, job, *deck, session.size());
    return worst == all.end() ? "" : shortage_of(*worst, device, job, deck, session.size());
  }());
  if (!text.empty()) throw runtime::AgreedError(text);
}

void require_memory(const runtime::Session& session, runtime::Device& device, const program::Inference& job,
                    std::int64_t pinned) {
  const std::vector<Findings> all =
      findings_of_all(session, device, plan::memory_of(job.programs.all()), pinned);
  const auto worst = std::find_if(all.begin(), all.end(), do_not_fit);
  const std::string text = session.from_rank_0([&]() -> std::string {
    if (session.rank() != 0 || worst == all.end()) return "";
    return fmt::format(
        "generation does not fit: {}\n{}Use more nodes, fewer tokens (--tokens, --max-length, shorter "
        "prompts), a smaller --chunk, or a narrower --dtype",
        finding_text(*worst, device), table_of(job.programs.all(), job.programs.at(program::prefill_name)));
  }());
  if (!text.empty()) throw runtime::AgreedError(text);
}

}  // namespace ztrain::job
