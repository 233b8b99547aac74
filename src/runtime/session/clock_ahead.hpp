#pragma once
// Times that ranks took, each by its own clock, on one line: clocks of two machines begin when these were
// started.

#include <functional>

#include "base/clock.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::runtime {

/// Collective. Seconds by which this rank's clock is ahead of rank 0's: of several questions of rank 0 the
/// one that was answered soonest, whose answer is taken to be given half way (Cristian, "Probabilistic clock
/// synchronization", 1989), which is wrong by half of the time that it took at most. clock: `now`, but in
/// tests.
double clock_ahead(const Session& session, const std::function<double()>& clock = now);

}  // namespace ztrain::runtime
