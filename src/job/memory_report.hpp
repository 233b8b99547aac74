#pragma once
// The memory table that a run prints.

#include <string>

#include "program/ir/program.hpp"

namespace ztrain::job {

/// The table that the start banner prints: categories of the train step, then extents.
std::string memory_table(const program::Program& train, std::int64_t persistent_bytes,
                         std::int64_t transient_bytes);

}  // namespace ztrain::job
