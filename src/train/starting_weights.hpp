#pragma once
// The weights that model.from names, read where other runs draw theirs.

#include "config/deck.hpp"
#include "job/worker.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::train {

/// Collective: reads the weights, draws adapters that they lack, and makes the rest of the state that of a
/// new run. Says how it goes on, how fast it was, and what memory the operating system counts for each rank
/// before anything but the weights was touched. Throws AgreedError.
void start_from_weights(const runtime::Session& session, telemetry::Console& console, job::Worker& worker,
                        const config::Deck& deck);

}  // namespace ztrain::train
