#pragma once
// The messages between the ranks of a pipeline, as they follow from the turns of all of them: when a rank
// begins to receive one, and from when on its sender may rely on that. Pure.
//
// A message goes over once both sides have begun it, and those from one rank to another arrive in the order
// in which they are sent, whatever the order in which they are needed. So a rank begins to receive in that
// order, some turns before it needs a message, but never before it needs the one ahead of it: it would wait
// for that one, whose sender may be waiting for what this rank does first.

#include <functional>
#include <map>
#include <vector>

#include "program/schedules/message_map.hpp"

namespace ztrain::program {

/// The turns of all ranks of a pipeline.
struct PipelineOrder {
  StageMap map;
  std::vector<std::vector<Turn>> turns;  ///< by rank
  int ahead = 1;                         ///< turns by which receives are begun early
};

/// Of one rank, by the numbers of its turns.
struct MessagePlan {
  /// By message to it: the turn before which it begins to receive it. Those of one sender ascend in its
  /// order.
  std::map<MessageId, int> begins;
  std::map<MessageId, int>
      number;  ///< by message to it: among those of all turns, in the order in which they begin
  /// By message from it: the turn behind which the other side is known to receive it, since what this rank
  /// needed for the turn cannot have come otherwise. What is sent must not be waited for any earlier.
  std::map<MessageId, int> received;
};

/// Calls take with the turns of every rank in their order, again where it was false: what the turn waits for
/// is not there yet. Throws Error where ranks wait for each other in a circle.
void follow_turns(const PipelineOrder& order, const std::function<bool(int rank, const Turn& turn)>& take);

/// Throws Error where ranks wait for each other in a circle.
MessagePlan plan_messages(const PipelineOrder& order, int rank);

}  // namespace ztrain::program
