#include "program/schedules/messages.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/shape.hpp"

namespace ztrain::program {
namespace {

using Begins = MessagePlanner::Begins;
using Receives = MessagePlanner::Receives;

/// Ranks that wait for each other's receives. The messages of a rank in one direction go over one after
/// another: it cannot begin one before the receiver of the one ahead has begun to receive that. Where two
/// ranks are so far ahead of what the other needs that both wait at a send, they would wait for ever: this
/// follows the ranks turn by turn, and lets a rank that waits for good begin what another one has sent:
/// there, and not when it would be its turn. Earlier receives need more memory, so that no others are moved.
class Follower {
 public:
  /// begun: of a run before this one; empty: receives of one turn begin in the order of their use.
  Follower(const PipelineOrder& order, std::vector<Begins>& begins, const Receives& begun)
      : order_(order), map_(order.map), begins_(begins), ranks_(order.turns.size()) {
    for (int rank = 0; rank < std::ssize(ranks_); ++rank)
      for (std::size_t turn = 0; turn < order.turns[at(rank)].size(); ++turn)
        if (const auto id = map_.sent_by(rank, order.turns[at(rank)][turn])) sent_in_[*id] = turn;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      list_receives(static_cast<int>(rank), begun.empty() ? in_use(static_cast<int>(rank)) : begun[rank]);
  }

  /// Whether any receive had to be moved.
  bool run() {
    bool any = false;
    while (!all_done()) {
      bool moved = false;
      for (int rank = 0; rank < std::ssize(ranks_); ++rank)
        while (advance(rank)) moved = true;
      if (moved || all_done()) continue;
      for (int rank = 0; rank < std::ssize(ranks_) && !moved; ++rank) moved = free(rank);
      REQUIRE(moved,
              "pipeline.schedule: the ranks of the pipeline wait for each other's messages in a circle");
      any = true;
    }
    return any;
  }

  Receives begun() const {
    Receives all;
    for (const Rank& rank : ranks_) all.push_back(rank.begun);
    return all;
  }

 private:
  struct Rank {
    std::size_t turn = 0;
    bool computed = false;  ///< the turn; what it sends has yet to be begun
    std::vector<std::vector<MessageId>>
        receives;          ///< by turn: what begins before it, in the order of its use
    std::size_t next = 0;  ///< of the turn's receives
    std::vector<MessageId> begun;
    std::array<std::optional<MessageId>, 2> sent;   ///< the last, by direction
    std::array<std::optional<MessageId>, 2> asked;  ///< the last receive, by direction
  };

  bool is_over(const MessageId& id) const { return sent_.contains(id) && asked_.contains(id); }
  bool is_over(const std::optional<MessageId>& id) const { return !id || is_over(*id); }
  bool all_done() const {
    return std::ranges::all_of(ranks_, [](const Rank& r) { return r.turn == r.receives.size(); });
  }

  std::vector<MessageId> in_use(int rank) const {
    std::vector<MessageId> ids;
    for (const Turn& turn : order_.turns[at(rank)])
      if (const auto id = map_.needed_by(rank, turn)) ids.push_back(*id);
    return ids;
  }

  void list_receives(int rank, const std::vector<MessageId>& ids) {
    Rank& r = ranks_[at(rank)];
    r.receives.resize(order_.turns[at(rank)].size());
    for (const MessageId& id : ids) r.receives[at(begins_[at(rank)].at(id))].push_back(id);
    for (std::vector<MessageId>& receives : r.receives) as_sent(receives);
  }

  /// Messages of one sender change places with each other, so that they are in its order.
  void as_sent(std::vector<MessageId>& receives) const {
    for (std::size_t i = 0; i < receives.size(); ++i)
      for (std::size_t j = i + 1; j < receives.size(); ++j)
        if (map_.sender(receives[i]) == map_.sender(receives[j]) &&
            sent_in_.at(receives[j]) < sent_in_.at(receives[i]))
          std::swap(receives[i], receives[j]);
  }

  /// One step of a rank: a receive, a turn or a send. False where it has to wait.
  bool advance(int rank) {
    Rank& r = ranks_[at(rank)];
    if (r.turn == r.receives.size()) return false;
    if (!r.computed && r.next < r.receives[r.turn].size()) return ask(rank, r.receives[r.turn][r.next]);
    const Turn& turn = order_.turns[at(rank)][r.turn];
    if (!r.computed) {
      if (const auto id = map_.needed_by(rank, turn); id && !is_over(*id)) return false;
      return r.computed = true;
    }
    if (const auto id = map_.sent_by(rank, turn)) {
      std::optional<MessageId>& ahead = r.sent[map_.onward(*id) ? 1 : 0];
      if (!is_over(ahead)) return false;
      ahead = id;
      sent_.insert(*id);
    }
    ++r.turn;
    r.computed = false;
    r.next = 0;
    return true;
  }

  bool ask(int rank, const MessageId& id) {
    if (!asked_.contains(id) && !begin(rank, id)) return false;
    ++ranks_[at(rank)].next;
    return true;
  }

  /// False where the receive ahead of it in its direction is not over.
  bool begin(int rank, const MessageId& id) {
    Rank& r = ranks_[at(rank)];
    std::optional<MessageId>& ahead = r.asked[map_.onward(id) ? 1 : 0];
    if (!is_over(ahead)) return false;
    ahead = id;
    asked_.insert(id);
    r.begun.push_back(id);
    return true;
  }

  /// Where a rank waits behind a message that its receiver has not begun to receive: lets it, now.
  bool free(int rank) {
    const Rank& r = ranks_[at(rank)];
    if (r.turn == r.receives.size() || !r.computed) return false;
    const auto id = map_.sent_by(rank, order_.turns[at(rank)][r.turn]);
    const std::optional<MessageId>& ahead = r.sent[map_.onward(*id) ? 1 : 0];
    const int to = map_.receiver(*ahead);
    // In the order of the sender: what it sent in the other direction may be ahead of it, too.
    for (const Turn& turn : order_.turns[at(rank)]) {
      const auto sent = map_.sent_by(rank, turn);
      if (!sent || map_.receiver(*sent) != to || asked_.contains(*sent)) continue;
      if (!begin(to, *sent)) return false;
      begins_[at(to)][*sent] = static_cast<int>(ranks_[at(to)].turn);
      if (sent == ahead) return true;
    }
    return false;
  }

  const PipelineOrder& order_;
  MessageMap map_;
  std::vector<Begins>& begins_;
  std::vector<Rank> ranks_;
  std::map<MessageId, std::size_t> sent_in_;  ///< the turn of its sender
  std::set<MessageId> sent_, asked_;          ///< begun by their senders, by their receivers
};

/// A receive that is moved begins before its turn, and its rank may have waited behind that turn: so the
/// ranks are followed again, until none moves. begins: by rank.
Receives begin_in_time(const PipelineOrder& order, std::vector<Begins>& begins) {
  Receives begun;
  for (bool moved = true; moved;) {
    Follower follower(order, begins, begun);
    moved = follower.run();
    begun = follower.begun();
  }
  return begun;
}

/// Gives the messages from one rank to another, in the order of the sender, the turns before which they begin
/// to be received. turns: those that need them.
void begin_in_order(const std::vector<int*>& turns, int ahead) {
  int earliest = std::numeric_limits<int>::max();
  for (auto turn = turns.rbegin(); turn != turns.rend(); ++turn)
    **turn = earliest = std::min(earliest, **turn);
  int before = 0;  // the turn that needs the one ahead of it
  for (int* turn : turns) {
    const int needed = std::exchange(*turn, std::max(before, *turn - ahead));
    before = needed;
  }
}

}  // namespace

void follow_turns(const PipelineOrder& order, const std::function<bool(int rank, const Turn& turn)>& take) {
  std::vector<std::size_t> taken(order.turns.size(), 0);
  for (bool moves = true; moves;) {
    moves = false;
    for (int rank = 0; rank < std::ssize(taken); ++rank) {
      const std::vector<Turn>& turns = order.turns[at(rank)];
      std::size_t& next = taken[at(rank)];
      for (; next < turns.size() && take(rank, turns[next]); ++next) moves = true;
    }
  }
  for (int rank = 0; rank < std::ssize(taken); ++rank)
    REQUIRE(
        taken[at(rank)] == order.turns[at(rank)].size(),
        "pipeline.schedule: rank {} of the pipeline waits at its {} for a result that never comes, because "
        "ranks wait for each other in a circle",
        rank, describe(order.turns[at(rank)][taken[at(rank)]], {order.map, rank}));
}

MessagePlanner::MessagePlanner(PipelineOrder order) : order_(std::move(order)), ids_(order_.map) {
  const int ranks = order_.map.ranks;
  begins_.resize(at(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    first_.push_back(turns_);
    turns_ += order_.turns[at(rank)].size();
    note_needs(rank);
  }
  for (int from = 0; from < ranks; ++from) begin_all(from);
  std::vector<int> taken(at(ranks), 0);
  follow_turns(order_, [&](int rank, const Turn& turn) { return take_turn(rank, turn, taken); });
  receives_ = begin_in_time(order_, begins_);
}

MessagePlan MessagePlanner::of(int rank) const {
  MessagePlan plan{begins_[at(rank)], {}, {}};
  for (const MessageId& id : receives_[at(rank)]) plan.number[id] = static_cast<int>(plan.number.size());
  const std::vector<Turn>& turns = order_.turns[at(rank)];
  const int last = static_cast<int>(turns.size()) - 1;
  std::map<int, std::vector<int>> known;  // by receiver
  for (int turn = 0; turn <= last; ++turn) {
    const auto sent = ids_.sent_by(rank, turns[at(turn)]);
    if (!sent) continue;
    const int to = ids_.receiver(*sent), begun = begins_[at(to)].at(*sent);
    const auto [it, fresh] = known.try_emplace(to);
    if (fresh) it->second = known_of(to);
    int until = turn;
    while (until < last && it->second[index_of(rank, until)] < begun) ++until;
    plan.received[*sent] = until;
  }
  return plan;
}

void MessagePlanner::note_needs(int rank) {
  const std::vector<Turn>& turns = order_.turns[at(rank)];
  for (std::size_t turn = 0; turn < turns.size(); ++turn) {
    if (const auto id = ids_.needed_by(rank, turns[turn])) begins_[at(rank)][*id] = static_cast<int>(turn);
    if (const auto id = ids_.sent_by(rank, turns[turn]))
      sent_in_[*id] = index_of(rank, static_cast<int>(turn));
  }
}

void MessagePlanner::begin_all(int from) {
  std::map<int, std::vector<int*>> begun;  // by receiver, in the order of the sender
  for (const Turn& turn : order_.turns[at(from)])
    if (const auto id = ids_.sent_by(from, turn)) {
      const int to = ids_.receiver(*id);
      begun[to].push_back(&begins_[at(to)].at(*id));
    }
  for (const auto& [to, turns] : begun) begin_in_order(turns, order_.ahead);
}

bool MessagePlanner::take_turn(int rank, const Turn& turn, std::vector<int>& taken) {
  Taken now{rank, taken[at(rank)], {}};
  if (const auto id = ids_.needed_by(rank, turn)) {
    now.sent = sent_in_.at(*id);
    const int from = ids_.sender(*id);
    if (index_of(from, taken[at(from)]) <= *now.sent) return false;
  }
  ++taken[at(rank)];
  taken_.push_back(now);
  return true;
}

std::vector<int> MessagePlanner::known_of(int other) const {
  std::vector<int> known(turns_, -1);
  for (const Taken& t : taken_) {
    const std::size_t own = index_of(t.rank, t.turn);
    if (t.rank == other) {
      known[own] = t.turn;
      continue;
    }
    if (t.turn > 0) known[own] = known[own - 1];
    if (t.sent) known[own] = std::max(known[own], known[*t.sent]);
  }
  return known;
}

MessagePlan plan_messages(const PipelineOrder& order, int rank) {
  return MessagePlanner(order).of(rank);
}

}  // namespace ztrain::program
