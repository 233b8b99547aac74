#pragma once
// A schedule that is given as a table, in the form in which PyTorch's torch.distributed.pipelining writes one
// (_dump_csv): a line for each rank of the pipeline, with its actions in order, separated by commas. An
// action is the number of a stage, a letter and the number of a micro-batch: "3F0" forward, "3B0" the whole
// backward, "3I0" and "3W0" its halves for inputs and for weights; where a stage's "B" has a "W" behind it,
// as older versions write it, it is the half for inputs. "(3F0;1B2)OVERLAP_F_B" is its parts, one after the
// other. Empty cells are waiting, which nobody needs to be told of. Nor are the messages and gathers of a
// table with communication (SEND_F, UNSHARD, ...) read: they are planned anew.

#include <string>
#include <string_view>

#include "program/schedules/schedule.hpp"

namespace ztrain::program {

/// name: of the file, for messages. Throws Error that names it, the line and the action where the text is no
/// such table, where stages go over the ranks neither round and round nor back and forth, where a line is no
/// step (fault_of), and where the ranks would wait for each other.
Schedule schedule_from_csv(std::string_view text, const std::string& name);

}  // namespace ztrain::program
