#pragma once
// How often a job should save.

#include "plan/cost.hpp"

namespace ztrain::plan {

/// sqrt(2 x seconds of a save x seconds between failures of the job) between saves loses least time to saves
/// and to steps that are repeated (Young, "A first order approximation to the optimum checkpoint interval",
/// 1974).
struct SaveInterval {
  double save = 0;      ///< seconds that a save takes
  double failures = 0;  ///< seconds between failures, on average, of a job of so many nodes
  double best = 0;      ///< seconds between saves
  double lost = 0;      ///< share of the time that then goes to saves and to repeated steps
};

/// Assumes the machine file's rate at which a node writes and its time between failures, and that a save
/// stops the steps; one in the background (checkpoint.async) costs less.
SaveInterval save_interval(const Cost& cost);

}  // namespace ztrain::plan
