#pragma once
// Puts the messages of a step between the stages of a pipeline where they do not wait for each other
// (program/schedules/messages.hpp).

#include <cstddef>
#include <vector>

#include "program/ir/program.hpp"
#include "program/schedules/messages.hpp"

namespace ztrain::program {

/// Moves receives, which stand where they are needed, to the turns before which they begin, and lets what is
/// sent live until its receiver is known to be there. turn_begins: by turn, its first op. Returns the same of
/// what has become of them.
std::vector<std::size_t> place_messages(Program& program, const std::vector<std::size_t>& turn_begins,
                                        const StageMap& map, int rank, const MessagePlan& plan);

}  // namespace ztrain::program
