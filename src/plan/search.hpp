#pragma once
// Finds which way of using a number of ranks is fastest among those that fit, and which other ways of summing
// gradients would shorten the step.

#include <optional>
#include <string>
#include <vector>

#include "plan/changes.hpp"
#include "plan/cost.hpp"
#include "plan/fit.hpp"

namespace ztrain::plan {

struct Search {
  std::vector<Setting> best;  ///< of strategy, mesh, micro-batch and recomputation; by tokens per second
  int tried = 0;
  Ended ended = Ended::not_early;         ///< the watch may have ended the search
  std::vector<std::string> frugal;        ///< frugal_overrides of the question, where least_ranks need them
  std::optional<LeastRanks> least_ranks;  ///< that hold the model with those

  /// All that the deck needs on least_ranks.
  std::vector<std::string> least_overrides() const;
};

/// Strategy x (replicate, shard) x batch.micro x recompute.mode, on the question's ranks, with mesh.tensor as
/// the deck has it or, where that is 1, also with 2, 4, ... ranks of a node and
/// tensor.overlap; where none of these fits with
/// mesh.context at 2, 4, ..., without sharding.overlap_reduce, and last with what [offload] sends to the
/// host. All other keys stay as the deck has them. Relies on more micro-batch or less sharding never needing
/// less memory. The deck's own mesh and batch need not go together with the ranks. If its degrees do not
/// divide them, others take their place.
Search search_for(const Question& question, const Watch& watch, std::size_t most = 8);

/// Another way of summing gradients over ranks, for a deck whose step waits for communication.
struct OtherSums {
  Change change;
  Cost cost;
};

/// Returns the ways that fit and shorten the step by 2% or more, the fastest first: sums once a step instead
/// of once a micro-batch, and sums whose elements travel in bf16. Compiles nothing if the deck does not fit,
/// or if the step computes for 95% of its time.
std::vector<OtherSums> with_other_sums(const Question& question, const Cost& own);

}  // namespace ztrain::plan
