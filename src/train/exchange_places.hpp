#pragma once
// Ranks that hang tell each other where they are by files in run.output, beside the communicators.

#include <memory>

#include "config/deck.hpp"
#include "job/worker.hpp"
#include "telemetry/console.hpp"
#include "telemetry/watchdog.hpp"

namespace ztrain::train {

/// Collective. For as long as it lives the watchdog asks all ranks where they are before it ends the job.
/// Nothing for one rank, without a timeout, and, with a warning, where some rank cannot write in run.output:
/// then each tells of itself alone. The worker outlives it.
std::unique_ptr<telemetry::Watchdog::Exchange> exchange_places(const runtime::Session& session,
                                                               telemetry::Console& console,
                                                               telemetry::Watchdog& watchdog,
                                                               const job::Worker& worker,
                                                               const config::Deck& deck);

}  // namespace ztrain::train
