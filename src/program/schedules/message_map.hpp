#pragma once
// Which turns of a pipeline's ranks send a message, and which need one.

#include <compare>
#include <optional>

#include "program/schedules/schedule.hpp"

namespace ztrain::program {

struct MessageId {
  int boundary = 0;       ///< between stage boundary - 1 and stage boundary
  bool gradient = false;  ///< back, from stage boundary
  int micro = 0;
  auto operator<=>(const MessageId&) const = default;
};

class MessageMap {
 public:
  explicit MessageMap(const StageMap& map) : map_(map) {}

  int sender(const MessageId& id) const { return map_.rank_of(id.gradient ? id.boundary : id.boundary - 1); }
  int receiver(const MessageId& id) const {
    return map_.rank_of(id.gradient ? id.boundary - 1 : id.boundary);
  }
  /// Whether it goes to the next rank of the ring of ranks, or of a vee of the line of ranks; else to the
  /// previous.
  bool onward(const MessageId& id) const {
    const int before = map_.rank_of(id.boundary - 1), behind = map_.rank_of(id.boundary);
    const bool activation = map_.vee ? behind > before : (before + 1) % map_.ranks == behind;
    return activation != id.gradient;
  }

  /// None where the turn's neighbour is on the same rank, or there is none.
  std::optional<MessageId> sent_by(int rank, const Turn& turn) const { return of(rank, turn, 1); }
  std::optional<MessageId> needed_by(int rank, const Turn& turn) const { return of(rank, turn, 0); }

 private:
  /// ahead: 1 at the boundary that the turn works towards, 0 at that which it comes from.
  std::optional<MessageId> of(int rank, const Turn& turn, int ahead) const {
    if (turn.kind == TurnKind::backward_weights) return std::nullopt;
    const bool forward = turn.kind == TurnKind::forward;
    const int boundary = map_.stage_of(rank, turn.chunk) + (forward ? ahead : 1 - ahead);
    if (boundary == 0 || boundary == map_.stages() || map_.rank_of(boundary - 1) == map_.rank_of(boundary))
      return std::nullopt;
    return MessageId{boundary, !forward, turn.micro};
  }

  StageMap map_;
};

}  // namespace ztrain::program
