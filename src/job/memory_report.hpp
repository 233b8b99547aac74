#pragma once
// The memory table that a run prints.

#include <string>

#include "program/ir/program.hpp"

namespace ztrain::job {

/// The table that the start banner prints: categories of the train step, then extents.
std::string memory_table(const program::Program& train, std::int64_t persistent_bytes,
                         std::int64_t transient_bytes);

/// Whether anything that steps need is kept in another tier than the device's. Copies for checkpoints are
/// not.
bool is_offloaded(const program::Program& train);

}  // namespace ztrain::job
