#pragma once
// Estimates how long a job takes, with its evaluations and saves, and its energy.

#include "plan/cost.hpp"

namespace ztrain::plan {

/// Seconds of a job from its first step to its last save, without starting, loading and failures.
struct JobTime {
  double steps = 0;
  double evaluations = 0;
  double saves = 0;   ///< seconds in which steps wait for saves
  double energy = 0;  ///< joules at most: the nodes' largest power all the time; 0: not known
  double seconds() const { return steps + evaluations + saves; }
};

/// Returns the time of a job whose deck gives its length in steps or tokens.
///
/// A micro-batch of an evaluation takes the forward's share of a micro-batch in training. A save takes what
/// save_interval() says; one in the background (checkpoint.async) is waited for only as far as it outlasts
/// the steps to the next one.
JobTime job_time(const Cost& cost);

}  // namespace ztrain::plan
