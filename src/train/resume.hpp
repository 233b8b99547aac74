#pragma once
// Goes on from a checkpoint: with the same deck to the same bits, with another one (checkpoint.override) from
// the same weights, optimizer states and step.

#include "train/saves.hpp"

namespace ztrain::train {

/// Collective. Goes on from the newest sound checkpoint, or from the one that checkpoint.resume names, and
/// prints how. Returns whether there is one. If all checkpoints are damaged, throws AgreedError: starting
/// anew without being asked would hide that.
bool resumes(Run& run, const Snapshots& snapshots, Checkpoints& known);

/// Throws Error if the run could not be exported at its end, before minutes of reading.
void require_export(const Run& run);

}  // namespace ztrain::train
