#pragma once
// Texts on how a run goes on from a checkpoint.

#include <cstdint>
#include <set>
#include <string>

#include "job/progress.hpp"
#include "train/run.hpp"

namespace ztrain::train {

/// Whether a run that goes on reads its data as before, or in other steps, of other files or rows.
enum class DataCourse : std::uint8_t { same, changed };

/// Returns what checkpoint.override changes: the keys, the learning rate with which the run goes on and where
/// it ends, and where the data go on. If the length alone differs, returns a warning if the learning rate
/// jumps. Returns "" if nothing changes, or if no step is left. The run has its new data, course and length;
/// `restored` is what the checkpoint says.
std::string notes_on_changes(const Run& run, const job::Restored& restored, DataCourse course);

/// Returns the note that these states (checkpoint::Loaded::anew) are zeros, or "" if there are none.
std::string note_on_states(const std::set<std::string>& anew);

}  // namespace ztrain::train
