#pragma once
// Reading rows ahead of a run, for what only their tokens can show.

#include <cstdint>

#include "data/rows/row_source.hpp"

namespace ztrain::data {

/// Reads rows in their order, for at most `seconds`, and gives how many. Throws what RowSource::fill throws:
/// an id outside the vocabulary that would end a run when it gets there.
std::int64_t read_rows(const RowSource& rows, double seconds);

}  // namespace ztrain::data
