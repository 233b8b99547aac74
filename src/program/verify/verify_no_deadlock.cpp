// The proof of the joint graph. As the host thread of a rank issues its ops in one order, each rank's part of
// the graph is a chain of starts and waits: Kahn's algorithm on the merged graph is to let every chain run as
// far as it can. Ranks of a class share one chain, and all ranks are run, so the answer is exact for any
// number of ranks.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "program/ir/joint.hpp"
#include "program/ir/order.hpp"
#include "program/loops/repeat.hpp"
#include "program/passes/final_passes.hpp"

namespace ztrain::program {
namespace {

std::string group_name(AxisSet axes, const std::vector<int>& ranks) {
  const auto shown = std::min<std::ptrdiff_t>(std::ssize(ranks), 8);
  return fmt::format("{}{{{}{}}}", to_string(axes), fmt::join(ranks.begin(), ranks.begin() + shown, ","),
                     std::ssize(ranks) > shown ? ",..." : "");
}

/// Whose times of the body messages have to be of.
enum class Times : std::uint8_t {
  same,  ///< the same on both sides
  close  ///< as may_be_close() says
};

class Joint {
 public:
  Joint(const std::vector<const Program*>& programs, const std::vector<std::vector<int>>& classes,
        Times times = Times::same)
      : programs_(programs), times_(times) {
    REQUIRE(programs.size() == classes.size(), "verify_no_deadlock: {} programs for {} classes of ranks",
            programs.size(), classes.size());
    if (programs.empty()) return;
    mesh_ = programs.front()->mesh;
    class_of_.assign(at(mesh_.ranks()), -1);
    for (std::size_t c = 0; c < programs.size(); ++c) {
      REQUIRE(programs[c]->mesh == mesh_, "rank {} was compiled for mesh {}, rank {} for {}",
              programs[c]->rank, programs[c]->mesh.describe(), programs.front()->rank, mesh_.describe());
      traces_.push_back(trace_of(*programs[c]));
      for (const int rank : classes[c]) {
        REQUIRE(rank >= 0 && rank < mesh_.ranks(), "rank {} is not in mesh {}", rank, mesh_.describe());
        REQUIRE(class_of_[at(rank)] < 0, "rank {} is given two programs", rank);
        class_of_[at(rank)] = static_cast<int>(c);
        ranks_.push_back(rank);
      }
    }
    std::sort(ranks_.begin(), ranks_.end());
  }

  void match() {
    for (const int rank : ranks_) {
      const Trace& own = trace(rank);
      for (std::size_t c = 0; c < own.channels.size(); ++c) match_channel(rank, static_cast<int>(c));
    }
  }

  /// Whether the list in which the body stands once shows all circles that there are when it is issued often.
  /// Messages of the body may be of another time on their sender than on their receiver, where from each
  /// start to who waits for it the time never goes down: then a circle is of one time, and stands in the
  /// list. The two sides are at most one time apart, so that the body and its copy have a message of each
  /// kind.
  bool may_be_close() {
    std::set<std::tuple<int, int, int, int>> seen;
    for (const int rank : ranks_)
      for (std::size_t c = 0; c < trace(rank).channels.size(); ++c) {
        const Channel& channel = trace(rank).channels[c];
        if (channel.kind != Channel::Kind::send) continue;
        for (const auto& [other, theirs] : partners(rank, channel)) {
          const int d = trace(other).find(theirs);
          if (!seen.insert({class_of_[at(rank)], static_cast<int>(c), class_of_[at(other)], d}).second)
            continue;
          if (d < 0 || !close(rank, trace(rank).sequence[c], other, trace(other).sequence[at(d)]))
            return false;
        }
      }
    return true;
  }

  void run() {
    connect();
    position_.assign(class_of_.size(), 0);
    next_waiter_.assign(class_of_.size(), -1);
    std::vector<int> ready(ranks_.rbegin(), ranks_.rend());
    while (!ready.empty()) {
      const int rank = ready.back();
      ready.pop_back();
      advance(rank, ready);
    }
    for (const int rank : ranks_)
      if (at(position_[at(rank)]) < trace(rank).steps.size()) report_cycle(rank);
  }

 private:
  /// One communication of all its members.
  struct Instance {
    int missing = 0;   ///< members that have not started it
    int waiting = -1;  ///< first rank of the list of those that wait for it
  };

  bool close(int rank, const std::vector<int>& mine, int other, const std::vector<int>& theirs) const {
    const Repeat &a = program(rank).repeat, &b = program(other).repeat;
    if (a.times != b.times || a.stride != b.stride || mine.size() != theirs.size()) return false;
    int before = 0, of_body = 0, longest = 0;  // by how many more there are here; in the body here
    for (std::size_t k = 0; k < mine.size(); ++k) {
      const Issue& x = trace(rank).issues[at(mine[k])];
      const Issue& y = trace(other).issues[at(theirs[k])];
      const int p = x.signature.part, q = y.signature.part;
      if (p > y.waited_in || q > x.waited_in) return false;
      before += (p == 0 ? 1 : 0) - (q == 0 ? 1 : 0);
      of_body += (p == 1 ? 1 : 0) - (q == 1 ? 1 : 0);
      longest += p == 1 ? 1 : 0;
    }
    return of_body == 0 && std::abs(before) <= longest;
  }

  bool known(int rank) const { return class_of_[at(rank)] >= 0; }
  const Trace& trace(int rank) const { return traces_[at(class_of_[at(rank)])]; }
  const Program& program(int rank) const { return *programs_[at(class_of_[at(rank)])]; }
  std::string describe_op(int rank, OpId op) const { return describe(program(rank), op); }
  std::string describe_issue(int rank, int issue) const {
    return describe_op(rank, trace(rank).issues[at(issue)].op);
  }

  const std::vector<int>& group(int rank, AxisSet axes) {
    std::vector<std::vector<int>>& groups = groups_[axes.bits()];  // by first member
    if (groups.empty()) groups.resize(class_of_.size());
    const Coordinate here(mesh_, rank);
    std::vector<int>& members = groups[at(here.group_id(axes))];
    if (members.empty()) members = here.group(axes);
    return members;
  }

  /// Of those that were given.
  int first_member(int rank, AxisSet axes) {
    const std::vector<int>& members = group(rank, axes);
    return *std::ranges::find_if(members, [&](int member) { return known(member); });
  }

  /// The other members of a rank's channel, of those that were given, and the channel's name on their side.
  std::vector<std::pair<int, Channel>> partners(int rank, const Channel& channel) {
    const std::vector<int>& members = group(rank, channel.axes);
    std::vector<std::pair<int, Channel>> result;
    if (channel.kind == Channel::Kind::collective) {
      for (const int other : members)
        if (other != rank && known(other)) result.emplace_back(other, channel);
      return result;
    }
    const int own = Coordinate(mesh_, rank).index_in(channel.axes);
    REQUIRE(channel.peer >= 0 && at(channel.peer) < members.size() && channel.peer != own,
            "rank {} exchanges messages with member {} of group {}, where it is member {} itself", rank,
            channel.peer, group_name(channel.axes, members), own);
    const auto mirror = channel.kind == Channel::Kind::send ? Channel::Kind::recv : Channel::Kind::send;
    if (const int other = members[at(channel.peer)]; known(other))
      result.emplace_back(other, Channel{mirror, channel.axes, own});
    return result;
  }

  void match_channel(int rank, int c) {
    const Channel& channel = trace(rank).channels[at(c)];
    if (channel.kind != Channel::Kind::collective) {
      for (const auto& [other, theirs] : partners(rank, channel)) compare_once(rank, c, other, theirs);
      return;
    }
    // All others agree with the group's first member, which compares itself with each of them.
    const int first = first_member(rank, channel.axes);
    if (first != rank) {
      if (trace(first).find(channel) < 0) compare_once(rank, c, first, channel);
      return;
    }
    for (const int other : group(rank, channel.axes))
      if (known(other) && class_of_[at(rank)] != class_of_[at(other)]) compare_once(rank, c, other, channel);
  }

  /// Once for each pair of classes; equal programs agree on a collective.
  void compare_once(int rank, int c, int other, const Channel& theirs) {
    const auto pair = std::tuple(class_of_[at(rank)], c, class_of_[at(other)], theirs.peer);
    if (matched_.insert(pair).second) compare(rank, c, other, trace(other).find(theirs));
  }

  void compare(int rank, int c, int other, int d) {
    const Trace& a = trace(rank);
    const Trace& b = trace(other);
    const std::vector<int>& mine = a.sequence[at(c)];
    const std::vector<int> nothing;
    const std::vector<int>& theirs = d < 0 ? nothing : b.sequence[at(d)];
    const Channel& channel = a.channels[at(c)];
    for (std::size_t k = 0; k < std::max(mine.size(), theirs.size()); ++k) {
      const std::string place = fmt::format("number {} {}", k + 1, channel_name(rank, channel, other));
      if (k >= mine.size() || k >= theirs.size()) {
        const bool short_here = k >= mine.size();
        fail("rank {} issues {} as {}, but rank {} issues only {} there: the job would hang",
             short_here ? other : rank,
             short_here ? describe_issue(other, theirs[k]) : describe_issue(rank, mine[k]), place,
             short_here ? rank : other, k);
      }
      const Signature& x = a.issues[at(mine[k])].signature;
      const Signature& y = b.issues[at(theirs[k])].signature;
      const bool same = channel.kind == Channel::Kind::collective
                            ? x == y
                            : same_message(x, y) && (times_ == Times::close || same_times(x, y));
      if (same) continue;
      fail("rank {} issues {} ({}) as {}, but rank {} issues {} ({})", rank, describe_issue(rank, mine[k]),
           to_string(x), place, other, describe_issue(other, theirs[k]), to_string(y));
    }
  }

  static bool same_message(const Signature& x, const Signature& y) {
    const Signature& send = x.kind == CommKind::send ? x : y;
    const Signature& recv = x.kind == CommKind::send ? y : x;
    return send.input_type == recv.output_type && send.input_elements == recv.output_elements &&
           send.micro == recv.micro && send.boundary == recv.boundary && send.split_over == recv.split_over &&
           send.partial_over == recv.partial_over;
  }

  static bool same_times(const Signature& x, const Signature& y) {
    return x.part == y.part && x.times == y.times;
  }

  std::string channel_name(int rank, const Channel& channel, int other) {
    if (channel.kind == Channel::Kind::collective)
      return "of group " + group_name(channel.axes, group(rank, channel.axes));
    const bool sends = channel.kind == Channel::Kind::send;
    return fmt::format("of the messages from rank {} to rank {} over {}", sends ? rank : other,
                       sends ? other : rank, to_string(channel.axes));
  }

  /// Numbers the instances; channel k of a rank holds instances first_[rank][k], first_[rank][k] + 1, ...
  void connect() {
    std::map<std::tuple<int, int, int>, int> bases;  // (axes, from, to), or (axes, group, -1) for collectives
    first_.assign(class_of_.size(), {});
    for (const int rank : ranks_) {
      const Trace& own = trace(rank);
      for (std::size_t c = 0; c < own.channels.size(); ++c) {
        const Channel& channel = own.channels[c];
        const std::vector<int>& members = group(rank, channel.axes);
        std::tuple<int, int, int> key{channel.axes.bits(), members.front(), -1};
        if (channel.kind == Channel::Kind::send) key = {channel.axes.bits(), rank, members[at(channel.peer)]};
        if (channel.kind == Channel::Kind::recv) key = {channel.axes.bits(), members[at(channel.peer)], rank};
        const auto [it, fresh] = bases.insert({key, static_cast<int>(instances_.size())});
        if (fresh) {
          const int members_known = static_cast<int>(partners(rank, channel).size()) + 1;
          instances_.resize(instances_.size() + own.sequence[c].size(), Instance{members_known, -1});
        }
        first_[at(rank)].push_back(it->second);
      }
    }
  }

  Instance& instance(int rank, const Issue& issue) {
    return instances_[at(first_[at(rank)][at(issue.channel)] + issue.ordinal)];
  }

  void advance(int rank, std::vector<int>& ready) {
    const Trace& own = trace(rank);
    for (int& p = position_[at(rank)]; at(p) < own.steps.size(); ++p) {
      const Step& step = own.steps[at(p)];
      Instance& target = instance(rank, own.issues[at(step.issue)]);
      if (step.before != no_op && target.missing > 0) {
        next_waiter_[at(rank)] = target.waiting;
        target.waiting = rank;
        return;
      }
      if (step.before != no_op || --target.missing > 0) continue;
      for (int waiter = target.waiting; waiter >= 0; waiter = next_waiter_[at(waiter)])
        ready.push_back(waiter);
      target.waiting = -1;
    }
  }

  /// For a rank that waits: the first member that has not started what it waits for, and that member's issue
  /// of it.
  std::pair<int, int> culprit(int rank) {
    const Trace& own = trace(rank);
    const Issue& issue = own.issues[at(own.steps[at(position_[at(rank)])].issue)];
    for (const auto& [other, theirs] : partners(rank, own.channels[at(issue.channel)])) {
      const Trace& b = trace(other);
      const int match = b.sequence[at(b.find(theirs))][at(issue.ordinal)];
      if (position_[at(other)] <= b.issues[at(match)].step) return {other, match};
    }
    fail("rank {} waits for {}, which all members have started", rank, describe_op(rank, issue.op));
  }

  [[noreturn]] void report_cycle(int rank) {
    std::vector<int> path;
    while (std::find(path.begin(), path.end(), rank) == path.end()) {
      path.push_back(rank);
      rank = culprit(rank).first;
    }
    path.erase(path.begin(), std::find(path.begin(), path.end(), rank));
    std::string text;
    for (const int waiting : path) {
      const Step& step = trace(waiting).steps[at(position_[at(waiting)])];
      const auto [other, match] = culprit(waiting);
      text += fmt::format("{}rank {} issues {} only when {} is complete, for which rank {} must issue {}",
                          text.empty() ? "" : "; ", waiting, describe_op(waiting, step.before),
                          describe_issue(waiting, step.issue), other, describe_issue(other, match));
    }
    fail("deadlock: the ranks wait for each other in a circle: {}", text);
  }

  const std::vector<const Program*>& programs_;
  Times times_;
  MeshShape mesh_;
  std::vector<Trace> traces_;  ///< per class
  std::vector<int> class_of_;  ///< per rank of the mesh; -1: not given
  std::vector<int> ranks_;
  std::map<int, std::vector<std::vector<int>>> groups_;  ///< per axes, by first member
  std::set<std::tuple<int, int, int, int>> matched_;
  std::vector<std::vector<int>> first_;
  std::vector<Instance> instances_;
  std::vector<int> position_, next_waiter_;  ///< per rank
};

void prove(Joint joint) {
  joint.match();
  joint.run();
}

/// Whether the lists in which the bodies stand once prove it.
bool proven_by_lists(const std::vector<const Program*>& programs,
                     const std::vector<std::vector<int>>& classes) {
  try {
    Joint joint(programs, classes, Times::close);
    if (!joint.may_be_close()) return false;
    prove(std::move(joint));
  } catch (const Error&) {
    return false;  // what the whole step does says why
  }
  return true;
}

}  // namespace

// Where bodies stand for others from one rank to another, or not on all ranks, and their lists do not prove
// it, the steps themselves are looked at, written out.
void verify_no_deadlock(const std::vector<const Program*>& programs,
                        const std::vector<std::vector<int>>& classes) {
  const auto in_body = [](const Program* p) { return p->repeat.warm_up == 0 && p->repeat.times > 1; };
  const auto whole = [](const Program* p) { return p->repeat.times == 1; };
  if (std::ranges::all_of(programs, in_body) || std::ranges::all_of(programs, whole))
    return prove(Joint(programs, classes));
  if (proven_by_lists(programs, classes)) return;
  std::vector<Program> written;
  std::vector<const Program*> all;
  for (const Program* p : programs) written.push_back(unrolled(*p));
  for (const Program& p : written) all.push_back(&p);
  prove(Joint(all, classes));
}

}  // namespace ztrain::program
