#pragma once
// The memory table that a run prints.

#include <string>

#include "plan/memory.hpp"
#include "program/ir/program.hpp"

namespace ztrain::job {

/// The table that the start banner prints: categories of the train step, then extents, all of the device's
/// memory; and a line for each other tier that has something. memory: of all the rank's Programs.
std::string memory_table(const program::Program& train, const plan::RankMemory& memory);

/// Whether anything that steps need is kept in another tier than the device's. Copies for checkpoints do
/// not count.
bool is_offloaded(const program::Program& train);

}  // namespace ztrain::job
