#pragma once
// Puts times of ranks on one line. Each rank has its own clock, and clocks of two machines begin when these
// were started.

#include <functional>

#include "base/clock.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::runtime {

/// Collective. Returns the seconds by which this rank's clock is ahead of rank 0's. Rank 0 asks several
/// times, and the answer that came soonest counts as given half way (Cristian, "Probabilistic clock
/// synchronization", 1989); its error is at most half of its time. clock is `now`, except in tests.
double clock_ahead(const Session& session, const std::function<double()>& clock = now);

}  // namespace ztrain::runtime
