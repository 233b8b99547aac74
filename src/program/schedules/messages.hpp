#pragma once
// The messages between the ranks of a pipeline, as they follow from the turns of all of them: when a rank
// begins to receive one, and from when on its sender may rely on that. Pure.
//
// A message goes over once both sides have begun it, and those from one rank to another arrive in the order
// in which they are sent, whatever the order in which they are needed. So a rank begins to receive in that
// order, some turns before it needs a message, but never before it needs the one ahead of it: it would wait
// for that one, whose sender may be waiting for what this rank does first.

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
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

/// Calls take(rank, turn) for each rank's turns in order. If take returns false, the turn cannot begin yet,
/// and it is tried again after other ranks have moved. Throws Error if no rank can move.
void follow_turns(const PipelineOrder& order, const std::function<bool(int rank, const Turn& turn)>& take);

/// Plans the messages of all ranks, which takes time in proportion to their turns.
class MessagePlanner {
 public:
  /// By message to one rank: the turn before which the rank begins to receive the message.
  using Begins = std::map<MessageId, int>;
  /// By rank: its receives in the order in which they begin.
  using Receives = std::vector<std::vector<MessageId>>;

  /// Throws Error if ranks wait for each other in a circle.
  explicit MessagePlanner(PipelineOrder order);

  MessagePlan of(int rank) const;

 private:
  /// A turn when its rank has what the turn needs.
  struct Taken {
    int rank = 0, turn = 0;
    std::optional<std::size_t> sent{};  ///< index_of the turn that sent what this one needs
  };

  std::size_t index_of(int rank, int turn) const {
    return first_[static_cast<std::size_t>(rank)] + static_cast<std::size_t>(turn);
  }
  void note_needs(int rank);
  void begin_all(int from);
  /// taken: the number of turns of each rank in taken_.
  bool take_turn(int rank, const Turn& turn, std::vector<int>& taken);
  /// By index_of a turn: the last turn that `other` is known, there, to have begun; -1: none.
  std::vector<int> known_of(int other) const;

  PipelineOrder order_;
  MessageMap ids_;
  std::vector<std::size_t> first_;  ///< by rank: index_of its first turn
  std::size_t turns_ = 0;           ///< of all ranks
  std::vector<Begins> begins_;      ///< by rank
  Receives receives_;
  std::map<MessageId, std::size_t> sent_in_;  ///< index_of the turn of its sender
  std::vector<Taken> taken_;                  ///< all turns, each behind those that it depends on
};

/// Returns the plan of one rank, for callers that need no other.
MessagePlan plan_messages(const PipelineOrder& order, int rank);

}  // namespace ztrain::program
