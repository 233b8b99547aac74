#pragma once
// What the stages of a pipeline did in one step, and when: timeline.json, which tools/plot_schedule.py draws.

#include "config/deck.hpp"
#include "job/worker.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::train {

/// Collective: the step, and of it run.output/timeline.json, in the form in which `ztrain plan --json` tells
/// the planned one: of the first rank of every stage, seconds from where rank 0 began, all by its clock.
/// Throws Error where work runs later than it is issued, or the file cannot be written.
void step_with_timeline(const runtime::Session& session, job::Worker& worker, const config::Deck& deck);

}  // namespace ztrain::train
