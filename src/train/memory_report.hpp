#pragma once
// The memory table: what the Programs of a job hold, by category. Pure.

#include <string>
#include <vector>

#include "program/program.hpp"

namespace ztrain::train {

struct MemoryRow {
  std::string category;
  std::int64_t persistent_bytes = 0;
  std::int64_t peak_bytes = 0;  ///< transient, at the moment when this program's live bytes peak
};

/// Rows with any bytes, for the device tier of one program.
std::vector<MemoryRow> memory_rows(const program::Program& program);

/// The table that the start banner prints: categories of the train step, then extents.
std::string memory_table(const program::Program& train, std::int64_t persistent_bytes,
                         std::int64_t transient_bytes);

}  // namespace ztrain::train
