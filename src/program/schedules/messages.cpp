#include "program/schedules/messages.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/index.hpp"
#include "program/schedules/rendezvous.hpp"

namespace ztrain::program {
namespace {

class Planner {
 public:
  explicit Planner(const PipelineOrder& order) : order_(order), map_(order.map), ids_(order.map) {
    const std::size_t ranks = at(map_.ranks);
    begins_.resize(ranks);
    known_.resize(ranks);
    for (int rank = 0; rank < map_.ranks; ++rank) note_needs(rank);
    for (int from = 0; from < map_.ranks; ++from) begin_all(from);
    follow();
    receives_ = begin_in_time(order, begins_);
  }

  MessagePlan of(int rank) const {
    MessagePlan plan{begins_[at(rank)], {}, {}};
    for (const MessageId& id : receives_[at(rank)]) plan.number[id] = static_cast<int>(plan.number.size());
    const std::vector<Turn>& turns = order_.turns[at(rank)];
    const int last = static_cast<int>(turns.size()) - 1;
    for (int turn = 0; turn <= last; ++turn) {
      const auto sent = ids_.sent_by(rank, turns[at(turn)]);
      if (!sent) continue;
      const int to = ids_.receiver(*sent), begun = begins_[at(to)].at(*sent);
      int until = turn;
      while (until < last && known_[at(rank)][at(until)][at(to)] < begun) ++until;
      plan.received[*sent] = until;
    }
    return plan;
  }

 private:
  using Known = std::vector<int>;  ///< by rank: the last turn that it is known to have begun; -1: none

  void note_needs(int rank) {
    const std::vector<Turn>& turns = order_.turns[at(rank)];
    for (std::size_t turn = 0; turn < turns.size(); ++turn) {
      if (const auto id = ids_.needed_by(rank, turns[turn])) begins_[at(rank)][*id] = static_cast<int>(turn);
      if (const auto id = ids_.sent_by(rank, turns[turn])) sent_in_[*id] = {rank, static_cast<int>(turn)};
    }
  }

  /// Of the messages from one rank to others.
  void begin_all(int from) {
    std::map<int, std::vector<int*>> begun;  // by receiver, in the order of the sender
    for (const Turn& turn : order_.turns[at(from)])
      if (const auto id = ids_.sent_by(from, turn)) {
        const int to = ids_.receiver(*id);
        begun[to].push_back(&begins_[at(to)].at(*id));
      }
    for (const auto& [to, turns] : begun) begin(turns);
  }

  /// Of the messages from one rank to another, in the order of the sender; they have the turns that need
  /// them.
  void begin(const std::vector<int*>& turns) const {
    int earliest = std::numeric_limits<int>::max();
    for (auto turn = turns.rbegin(); turn != turns.rend(); ++turn)
      **turn = earliest = std::min(earliest, **turn);
    int before = 0;  // the turn that needs the one ahead of it
    for (int* turn : turns) {
      const int needed = std::exchange(*turn, std::max(before, *turn - order_.ahead));
      before = needed;
    }
  }

  /// What each rank knows of the others when it has what it needs for a turn.
  void follow() {
    bool moves = true;
    while (moves) {
      moves = false;
      for (int rank = 0; rank < map_.ranks; ++rank)
        while (known_[at(rank)].size() < order_.turns[at(rank)].size() && take_turn(rank)) moves = true;
    }
    for (int rank = 0; rank < map_.ranks; ++rank)
      REQUIRE(known_[at(rank)].size() == order_.turns[at(rank)].size(),
              "pipeline.schedule: rank {} of the pipeline waits at its {} for what comes of it", rank,
              describe(order_.turns[at(rank)][known_[at(rank)].size()], {map_, rank}));
  }

  bool take_turn(int rank) {
    std::vector<Known>& own = known_[at(rank)];
    Known known = own.empty() ? Known(at(map_.ranks), -1) : own.back();
    if (const auto id = ids_.needed_by(rank, order_.turns[at(rank)][own.size()])) {
      const auto [from, turn] = sent_in_.at(*id);
      if (known_[at(from)].size() <= at(turn)) return false;
      const Known& theirs = known_[at(from)][at(turn)];
      for (std::size_t r = 0; r < known.size(); ++r) known[r] = std::max(known[r], theirs[r]);
    }
    known[at(rank)] = static_cast<int>(own.size());
    own.push_back(std::move(known));
    return true;
  }

  const PipelineOrder& order_;
  const StageMap& map_;
  MessageMap ids_;
  std::vector<Begins> begins_;  ///< by rank that receives
  Receives receives_;
  std::map<MessageId, std::pair<int, int>> sent_in_;  ///< {rank, turn}
  std::vector<std::vector<Known>> known_;             ///< by rank and turn
};

}  // namespace

MessagePlan plan_messages(const PipelineOrder& order, int rank) {
  return Planner(order).of(rank);
}

}  // namespace ztrain::program
