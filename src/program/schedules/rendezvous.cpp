#include "program/schedules/rendezvous.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "base/index.hpp"

namespace ztrain::program {
namespace {

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
    Rank& r = ranks_[at(rank)];
    if (!asked_.contains(id)) {
      std::optional<MessageId>& ahead = r.asked[map_.onward(id) ? 1 : 0];
      if (!is_over(ahead)) return false;
      ahead = id;
      asked_.insert(id);
      r.begun.push_back(id);
    }
    ++r.next;
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
      if (!begin_now(to, *sent)) return false;
      if (sent == ahead) return true;
    }
    return false;
  }

  bool begin_now(int rank, const MessageId& id) {
    Rank& r = ranks_[at(rank)];
    std::optional<MessageId>& ahead = r.asked[map_.onward(id) ? 1 : 0];
    if (!is_over(ahead)) return false;
    ahead = id;
    asked_.insert(id);
    r.begun.push_back(id);
    begins_[at(rank)][id] = static_cast<int>(r.turn);
    return true;
  }

  const PipelineOrder& order_;
  MessageMap map_;
  std::vector<Begins>& begins_;
  std::vector<Rank> ranks_;
  std::map<MessageId, std::size_t> sent_in_;  ///< the turn of its sender
  std::set<MessageId> sent_, asked_;          ///< begun by their senders, by their receivers
};

}  // namespace

// A receive that is moved begins before its turn, and its rank may have waited behind that turn: so the ranks
// are followed again, until none moves.
Receives begin_in_time(const PipelineOrder& order, std::vector<Begins>& begins) {
  Receives begun;
  for (bool moved = true; moved;) {
    Follower follower(order, begins, begun);
    moved = follower.run();
    begun = follower.begun();
  }
  return begun;
}

}  // namespace ztrain::program
