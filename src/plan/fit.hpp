#pragma once
// For a job that does not fit: the changes of its deck that make it fit, each proven by compiling it.

#include <optional>
#include <string>
#include <vector>

#include "plan/changes.hpp"
#include "plan/cost.hpp"
#include "plan/watch.hpp"

namespace ztrain::plan {

/// A degree of the mesh, or 1 where it is open.
constexpr std::int64_t known_degree(std::int64_t degree) {
  return degree > 0 ? degree : 1;
}

/// A deck with overrides.
struct Setting {
  std::vector<std::string> overrides;
  Effect effect = Effect::none;  ///< of all of them on the deck's numbers
  Cost cost;
};

struct Fix : Setting {
  std::vector<Change> changes;  ///< whose overrides these are
};

/// A number of ranks that hold a deck.
struct LeastRanks {
  int ranks = 0;
  std::vector<std::string> overrides;  ///< of batch.global, where the deck's own is whole on no such number
};

struct Fixes {
  std::vector<Fix> best;  ///< those that leave the numerics alone first, then by tokens per second
  int tried = 0;
  int refused = 0;                        ///< sets of changes whose keys do not go together with the deck
  Ended ended = Ended::not_early;         ///< the watch may have ended the search
  std::optional<LeastRanks> least_ranks;  ///< of this kind of machine, with the deck as it is
};

/// Tries single changes of the table, then pairs, then triples; a set that contains one that fits is not
/// tried. Where all the frugal ones together do not help, those that change numerics are tried: one or two,
/// alone and then beside the frugal ones; otherwise single ones.
Fixes fixes_for(const Question& question, const Watch& watch, std::size_t most = 4);

/// The rows of the table that are tried: what sends something to the host only where ranks have, or are
/// assumed to have, a device with memory of its own.
std::vector<Change> changes_for(const Question& question);

/// Overrides of the frugal changes, as far as they go together with the deck: what needs least memory of all
/// that leaves the numerics alone. Empty where the deck is that already.
std::vector<std::string> frugal_overrides(const Question& question);

/// The least number of ranks among which the batch can be divided and on which the deck fits with `more`
/// overrides: whole nodes, or parts of one node in powers of two, rounded up to a
/// multiple of the axes beside the sequences. Nothing beyond 16,384 ranks, or where the
/// deck fixes its mesh.
inline constexpr std::int64_t most_sizes = 300;  ///< of jobs that are looked through for it
std::optional<LeastRanks> least_ranks(const Question& question, const std::vector<std::string>& more,
                                      const Watch& watch);

/// Returns ", 12.00 GB of the host per rank, 96.00 GB of a node", or "" if the host holds nothing.
std::string host_memory_text(const Cost& cost);

/// A sentence or two for a job that was refused for lack of memory: the cheapest fixes as overrides, or what
/// else to do. Ranks wait for it.
std::string cheapest_fix_text(const Question& question);

}  // namespace ztrain::plan
