#pragma once
// What a run does before its first step.

#include "train/saves.hpp"

namespace ztrain::train {

/// Collective. Describes the run, holds its folders, and gives it the state from which it starts: that of the
/// newest checkpoint or snapshot that is sound, the weights that model.from names, or drawn ones. Then opens
/// the files of run.output, and sees that there is room for a checkpoint. Throws AgreedError.
void start(Run& run, TimeLimits& limits, RunOutput& output, Snapshots& snapshots, Saves& saves);

}  // namespace ztrain::train
