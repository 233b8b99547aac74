#pragma once
// Other ways of summing gradients over ranks, for a deck whose step waits for communication.

#include <vector>

#include "plan/changes.hpp"
#include "plan/cost.hpp"

namespace ztrain::plan {

struct OtherSums {
  Change change;
  Cost cost;
};

/// Returns the ways that fit and shorten the step by 2% or more, the fastest first: sums once a step instead
/// of once a micro-batch, and sums whose elements travel in bf16. Compiles nothing if the deck does not fit,
/// or if the step computes for 95% of its time.
std::vector<OtherSums> with_other_sums(const Question& question, const Cost& own);

}  // namespace ztrain::plan
