#pragma once
// Does what comes before a run's first step.

#include "train/saves.hpp"

namespace ztrain::train {

/// Collective. Describes the run, holds its folders, and sets its state: from the newest sound checkpoint or
/// snapshot, from the weights that model.from names, or drawn. Then opens the files of run.output, and checks
/// that there is room for a checkpoint. Throws AgreedError.
void start(Run& run, TimeLimits& limits, RunOutput& output, Snapshots& snapshots, Saves& saves);

}  // namespace ztrain::train
