#pragma once
// What the Programs of a job hold, by tier and category.

#include <array>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "layout/layout.hpp"
#include "program/ir/program.hpp"

namespace ztrain::plan {

struct MemoryRow {
  std::string category;
  std::int64_t persistent_bytes = 0;
  std::int64_t peak_bytes = 0;  ///< transient, at the moment when this tier's live bytes peak
};

/// Rows with any bytes, for one tier of one program.
std::vector<MemoryRow> memory_rows(const program::Program& program,
                                   program::Tier tier = program::Tier::device);

/// One Program of a job, as one rank holds it.
struct ProgramMemory {
  std::string name;
  std::array<program::TierPlan, program::tier_count> tiers;
  std::array<std::vector<MemoryRow>, program::tier_count> rows;
};

/// One rank: its Programs share one persistent region, and one transient region as large as the largest
/// needs.
struct RankMemory {
  int rank = 0;
  std::vector<ProgramMemory> programs;  ///< load, train step, evaluation; or load, prefill, decode

  std::int64_t persistent(program::Tier tier) const;
  std::int64_t transient(program::Tier tier) const;
  std::int64_t total(program::Tier tier) const { return persistent(tier) + transient(tier); }
};

/// Of the copy of its state that a rank has room for, for checkpoints that are written behind training.
std::int64_t copied_bytes(const RankMemory& memory);

/// What snapshots in memory take of a node (checkpoint.memory_copies): the newest, and the one that is being
/// written, of `own` bytes that its ranks save and of `before` that those of the node before do; and what its
/// ranks have in their hands while they send.
std::int64_t snapshot_bytes(std::int64_t own, std::int64_t before, int ranks);

/// Bytes per trained parameter of master weights beside the parameters, and of optimizer states. by_matrix:
/// the parameter is in a matrix of a hidden layer, which muon steps (optim::Info::others). copies: number of
/// copies of a state in which each has values of its own (optim::StateInfo).
double optimizer_bytes_of(const config::Deck& deck, bool by_matrix = true, std::int64_t copies = 1);

/// Numbers of trained parameters: all, and those that are stepped by whole matrices.
struct Trained {
  std::int64_t all = 0, by_matrix = 0;
};
Trained trained_of(const Layout& layout);

/// A checkpoint that holds so many parameters, from all ranks together: trained ones as their masters are,
/// with the optimizer's states, the others as they are computed with where checkpoints hold them
/// (config::saves_frozen).
double checkpoint_bytes(const config::Deck& deck, std::int64_t parameters, const Trained& trained);

/// Pinned host memory that the Programs' collectives are copied through where MPI cannot reach the device's:
/// for each stream as much as its largest takes.
std::int64_t staging_bytes(const std::vector<const program::Program*>& programs);

/// Of a job's Programs.
RankMemory memory_of(const std::vector<const program::Program*>& programs);

}  // namespace ztrain::plan
