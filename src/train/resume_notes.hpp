#pragma once
// Texts on how a run goes on from a checkpoint.

#include <cstdint>
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

}  // namespace ztrain::train
