#pragma once
// Ranks of a pipeline that wait for each other's receives. The messages of a rank in one direction go over
// one after another: it cannot begin one before the receiver of the one ahead has begun to receive that.
// Where two ranks are so far ahead of what the other needs that both wait at a send, they would wait for
// ever.

#include <map>
#include <vector>

#include "program/schedules/messages.hpp"

namespace ztrain::program {

/// Of one rank: the turn before which it begins each receive.
using Begins = std::map<MessageId, int>;
/// By rank: its receives in the order in which they begin.
using Receives = std::vector<std::vector<MessageId>>;

/// Follows the ranks turn by turn, and lets a rank that waits for good begin what another one has sent:
/// there, and not when it would be its turn. Earlier receives need more memory, so that no others are moved.
/// begins: by rank. Throws Error where that does not help.
Receives begin_in_time(const PipelineOrder& order, std::vector<Begins>& begins);

}  // namespace ztrain::program
