#pragma once
// What a run does before its first step.

#include "train/run.hpp"
#include "train/run_output.hpp"
#include "train/saves.hpp"
#include "train/snapshots.hpp"
#include "train/time_limits.hpp"

namespace ztrain::train {

/// Collective. Describes the run, holds its folders, and gives it the state from which it starts: that of the
/// newest checkpoint or snapshot that is sound, the weights that model.from names, or drawn ones. Then opens
/// the files of run.output, and sees that there is room for a checkpoint. Throws AgreedError.
void start(Run& run, TimeLimits& limits, RunOutput& output, Snapshots& snapshots, Saves& saves);

}  // namespace ztrain::train
