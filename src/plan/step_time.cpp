#include "plan/step_time.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <iterator>
#include <map>

#include "base/error.hpp"
#include "plan/rates/op_time.hpp"
#include "program/loops/repeat.hpp"

namespace ztrain::plan {
namespace {

using program::Op;
using program::OpId;
using program::Program;
using program::Stream;
/// What the host computes has a processor of its own only where others compute on a device. A rank that
/// computes on cores moves its collectives itself, between kernels: nothing is side by side but messages
/// between stages, for which it waits, and drives.
Stream stream_of(const Program& p, const Op& op, const Machine& machine) {
  if (machine.rates.cores > 0 && !is_message(op) && op.stream != Stream::io) return Stream::compute;
  return p.target == Target::cpu && op.stream == Stream::host ? Stream::compute : op.stream;
}

/// Messages between stages that are simulated together.
class Messages {
 public:
  /// One side has begun the next message from one rank to another. Once the other has, too, both are told
  /// when it ends.
  void begin(int from, int to, bool sends, const std::function<void(double)>& end_at, double start,
             double seconds) {
    auto& [sent, received] = waiting_[{from, to}];
    (sends ? sent : received).push_back({end_at, start});
    if (sent.empty() || received.empty()) return;
    const double end = std::max(sent.front().start, received.front().start) + seconds;
    for (auto* side : {&sent, &received}) {
      side->front().end_at(end);
      side->pop_front();
    }
  }

 private:
  struct Side {
    std::function<void(double)> end_at;
    double start = 0;
  };
  std::map<std::pair<int, int>, std::pair<std::deque<Side>, std::deque<Side>>> waiting_;
};

/// When a link is busy, and with what.
class Timetable {
 public:
  struct Slot {
    double start = 0;  ///< seconds
    OpId after = -1;   ///< the op whose end it begins with; -1: it begins when it was asked for
  };
  /// The first at or after `from` in which the link is free for `length` seconds.
  Slot earliest(double from, double length) const {
    Slot slot{from, -1};
    auto next = busy_.upper_bound(from);
    if (next != busy_.begin())
      if (const Busy& before = std::prev(next)->second; before.end > from) slot = {before.end, before.last};
    for (; next != busy_.end() && next->first < slot.start + length; ++next)
      slot = {next->second.end, next->second.last};
    return slot;
  }

  /// When work ends that begins at `start` and would take `length`, if it has `rate` of its speed while the
  /// link is busy.
  double end_beside(double start, double length, double rate) const {
    auto next = busy_.upper_bound(start);
    if (next != busy_.begin() && std::prev(next)->second.end > start) --next;
    for (; next != busy_.end() && next->first < start + length; ++next) {
      const double before = std::max(0.0, next->first - start), from = std::max(start, next->first);
      length -= before;
      const double busy = next->second.end - from;
      if (length <= busy * rate) return from + length / rate;
      length -= busy * rate;
      start = next->second.end;
    }
    return start + length;
  }

  /// Of a slot that is free. length > 0.
  void take(double start, double length, OpId op) {
    auto here = busy_.insert_or_assign(start, Busy{start + length, op}).first;
    if (here != busy_.begin())
      if (const auto before = std::prev(here); before->second.end >= start) {
        before->second = here->second;
        busy_.erase(here);
        here = before;
      }
    if (const auto next = std::next(here); next != busy_.end() && next->first <= here->second.end) {
      here->second = next->second;
      busy_.erase(next);
    }
  }

  /// What may overlap with what is there.
  void join(double start, double length) {
    double end = start + length;
    auto next = busy_.upper_bound(start);
    if (next != busy_.begin() && std::prev(next)->second.end >= start) --next;
    while (next != busy_.end() && next->first <= end) {
      start = std::min(start, next->first), end = std::max(end, next->second.end);
      next = busy_.erase(next);
    }
    busy_.emplace(start, Busy{end, -1});
  }

 private:
  struct Busy {
    double end;
    OpId last;  ///< the op that ends it
  };
  std::map<double, Busy> busy_;  ///< by start; intervals that touch are one
};

class Clock {
 public:
  /// times: how often what is repeated is walked. messages: of the stages of a pipeline; null: a rank is
  /// simulated by itself, and what it sends and receives takes its time alone.
  /// noted: gets the times of all ops; may be null.
  Clock(const Program& program, const Machine& machine, int times, Messages* messages = nullptr,
        program::StepTimes* noted = nullptr)
      : program_(program),
        machine_(machine),
        messages_(messages),
        noted_(noted),
        issues_(program, times),
        filled_(filled_rows(program)),
        end_(at(issues_.size()), 0),
        cause_(at(issues_.size()), -1) {
    last_.fill(-1);
    if (noted_ != nullptr) noted_->ops.resize(end_.size());
  }

  Simulation run() {
    advance();
    return result();
  }
  /// As far as it goes without messages whose other side has not come. False where that is nowhere.
  bool advance() {
    const OpId first = next_;
    while (next_ < issues_.size() && is_free(next_)) step(next_++);
    return next_ > first;
  }
  Simulation result() {
    ASSERT(next_ == issues_.size(), "a message of stage {} is never received",
           Coordinate(program_.mesh, program_.rank)[Axis::pipeline]);
    finish();
    return std::move(result_);
  }

 private:
  static constexpr double unknown = -1;

  /// Whether it is known when all that comes before it ends.
  bool is_free(OpId id) {
    const OpId tail = last_[static_cast<std::size_t>(stream_of(program_, issues_.op(id), machine_))];
    bool known = tail < 0 || end_[at(tail)] != unknown;
    issues_.each_before(id, [&](OpId before) { known = known && end_[at(before)] != unknown; });
    return known;
  }

  void step(OpId id) {
    const Op& op = issues_.op(id);
    const Stream stream = stream_of(program_, op, machine_);
    OpId& tail = last_[static_cast<std::size_t>(stream)];
    if (stream != Stream::host) issued_ += machine_.launch;
    const double free = std::max(tail < 0 ? 0 : end_[at(tail)], issued_);
    OpId cause = tail;
    double start = free;
    issues_.each_before(id, [&](OpId before) {
      if (end_[at(before)] > start) start = end_[at(before)], cause = before;
    });
    if (messages_ != nullptr && is_message(op)) {
      note(id, tail, free, start, cause);
      cause_[at(id)] = cause;
      tail = id;
      return exchange(id, start);
    }
    double seconds = 0;
    if (op.communicates() && !is_message(op)) {
      const GroupPlace& place = place_for(op);
      const LinkSeconds links = collective_seconds(program_, op, place, machine_, filled_);
      seconds = links.all();
      if (seconds > 0) occupy_links(links, id, start, cause);
    } else {
      seconds = duration_of(program_, op, machine_, filled_);
      if (stream == Stream::compute && machine_.rates.beside_collectives < 1)
        seconds = links_.end_beside(start, seconds, machine_.rates.beside_collectives) - start;
    }
    if (stream == Stream::compute) expose_wait(free, start, cause);
    note(id, tail, free, start, cause);
    if (messages_ != nullptr && seconds > 0) result_.work.add(issues_.action(id), start, start + seconds);
    end_[at(id)] = start + seconds;
    cause_[at(id)] = cause;
    tail = id;
    result_.busy[static_cast<std::size_t>(stream)][static_cast<std::size_t>(op.action.kind)] += seconds;
    result_.flops += op.flops;
    if (stream == Stream::compute) (op.communicates() ? result_.moving : result_.computing) += seconds;
  }

  /// tail: the op before it on its stream. free: when that one has ended, and the host has issued this one.
  void note(OpId id, OpId tail, double free, double start, OpId cause) {
    if (noted_ == nullptr) return;
    noted_->ops[at(id)] = {start, start, cause == tail ? -1 : cause};
    if (stream_of(program_, issues_.op(id), machine_) != Stream::compute) return;
    note_gap(program::GapKind::launch, id, tail < 0 ? 0 : end_[at(tail)], free);
    note_gap(program::GapKind::wait, cause, free, start);
  }
  void note_gap(program::GapKind kind, OpId id, double begin, double end) {
    if (noted_ != nullptr && end > begin) noted_->gaps.push_back({kind, id, begin, end});
  }

  void exchange(OpId id, double start) {
    const Op& op = issues_.op(id);
    const Coordinate here(program_.mesh, program_.rank);
    const bool sends = op.comm.kind == program::CommKind::send;
    const int own = here[Axis::pipeline], from = sends ? own : op.comm.peer;
    const double seconds = message_seconds(program_, op, machine_);
    end_[at(id)] = unknown;
    result_.busy[static_cast<std::size_t>(op.stream)][static_cast<std::size_t>(op.action.kind)] += seconds;
    messages_->begin(
        from, sends ? op.comm.peer : own, sends, [this, id](double end) { end_[at(id)] = end; }, start,
        seconds);
  }

  /// From the first time at or after `start` at which all links that it uses are free, each for as long as
  /// its bytes take. The latency is that of the slower one.
  void occupy_links(const LinkSeconds& times, OpId id, double& start, OpId& cause) {
    const bool leaves = times.network > 0;
    const std::array<std::pair<Timetable*, double>, 2> used{
        std::pair{&in_node_, times.node + (leaves ? 0 : times.latency)},
        std::pair{&out_of_node_, leaves ? times.network + times.latency : 0}};
    for (bool moved = true; moved;) {
      moved = false;
      for (const auto& [link, seconds] : used) {
        if (seconds <= 0) continue;
        const Timetable::Slot slot = link->earliest(start, seconds);
        if (slot.start > start) start = slot.start, cause = slot.after, moved = true;
      }
    }
    for (const auto& [link, seconds] : used)
      if (seconds > 0) link->take(start, seconds, id);
    if (machine_.rates.beside_collectives < 1) links_.join(start, times.all());
  }

  void expose(double seconds, OpId waited_for) {
    if (seconds <= 0) return;
    result_.exposed += seconds;
    result_.exposed_by[static_cast<std::size_t>(issues_.op(waited_for).action.kind)] += seconds;
  }

  /// Between stages what is waited for may itself have waited for a message: each part of the time goes to
  /// what was under way in it.
  void expose_wait(double from, double to, OpId waited_for) {
    if (messages_ == nullptr) return expose(to - from, waited_for);
    for (OpId op = waited_for; op >= 0 && to > from; op = cause_[at(op)]) {
      const double began = std::max(from, cause_[at(op)] < 0 ? 0 : end_[at(cause_[at(op)])]);
      expose(to - began, op);
      to = std::min(to, began);
    }
  }

  void finish() {
    const auto latest = std::max_element(end_.begin(), end_.end());
    if (latest == end_.end()) return;
    result_.seconds = *latest;
    const OpId computed = last_[static_cast<std::size_t>(Stream::compute)];
    const auto id = static_cast<OpId>(latest - end_.begin());
    expose(*latest - (computed < 0 ? 0 : end_[at(computed)]), id);
    note_gap(program::GapKind::wait, id, computed < 0 ? 0 : end_[at(computed)], *latest);
    if (noted_ != nullptr)
      for (std::size_t op = 0; op < end_.size(); ++op) noted_->ops[op].end = end_[op];
    for (OpId op = id; op >= 0; op = cause_[at(op)]) {
      const double start = cause_[at(op)] < 0 ? 0 : end_[at(cause_[at(op)])];
      result_.critical.push_back(op);
      result_.critical_by[static_cast<std::size_t>(issues_.op(op).action.kind)] += end_[at(op)] - start;
    }
    std::reverse(result_.critical.begin(), result_.critical.end());
  }

  const GroupPlace& place_for(const Op& op) {
    const auto [it, fresh] = places_.try_emplace(op.comm.axes.bits());
    if (fresh)
      it->second = place_of(Coordinate(program_.mesh, program_.rank), op.comm.axes, machine_.ranks_per_node);
    return it->second;
  }

  const Program& program_;
  const Machine& machine_;
  Messages* messages_;
  program::StepTimes* noted_;
  OpId next_ = 0;
  double issued_ = 0;       ///< when the host has issued what came so far
  program::Issues issues_;  ///< an OpId here is a place among them
  FilledRows filled_;
  std::vector<double> end_;  ///< by op
  std::vector<OpId> cause_;  ///< the op whose end let it start
  std::array<OpId, program::stream_count> last_{};
  std::map<std::uint32_t, GroupPlace> places_;  ///< by axes
  Timetable in_node_, out_of_node_;             ///< links of this rank
  Timetable links_;                             ///< any of them
  Simulation result_;
};

/// With n times of what is repeated, from `fewer` times and from one more: each further one adds what the
/// last one did.
Simulation extrapolate(const Simulation& a, const Simulation& b, int fewer, int n) {
  const auto further = static_cast<double>(n - fewer);
  const auto line = [&](double x, double y) { return std::max(0.0, x + further * (y - x)); };
  Simulation s = b;
  s.seconds = line(a.seconds, b.seconds);
  s.flops = line(a.flops, b.flops);
  s.computing = line(a.computing, b.computing);
  s.moving = line(a.moving, b.moving);
  s.exposed = line(a.exposed, b.exposed);
  const auto lines = [&](ByAction& to, const ByAction& x, const ByAction& y) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = line(x[i], y[i]);
  };
  for (std::size_t i = 0; i < s.busy.size(); ++i) lines(s.busy[i], a.busy[i], b.busy[i]);
  lines(s.exposed_by, a.exposed_by, b.exposed_by);
  lines(s.critical_by, a.critical_by, b.critical_by);
  return s;
}

}  // namespace

std::vector<Simulation> simulate_stages(const std::vector<const Program*>& programs, const Machine& machine,
                                        std::vector<program::StepTimes>* times) {
  Messages messages;
  std::deque<Clock> clocks;
  if (times != nullptr) times->resize(programs.size());
  for (std::size_t s = 0; s < programs.size(); ++s)
    clocks.emplace_back(*programs[s], machine, programs[s]->repeat.times, &messages,
                        times == nullptr ? nullptr : &times->at(s));
  for (bool moves = true; moves;) {
    moves = false;
    for (Clock& clock : clocks) moves = clock.advance() || moves;
  }
  std::vector<Simulation> simulations;
  for (Clock& clock : clocks) simulations.push_back(clock.result());
  return simulations;
}

Simulation simulate(const Program& program, const Machine& machine, int most_times) {
  const int times = program.repeat.times, walked = std::max(2, most_times);
  if (times <= walked) return Clock(program, machine, times).run();
  const Simulation fewer = Clock(program, machine, walked - 1).run();
  return extrapolate(fewer, Clock(program, machine, walked).run(), walked - 1, times);
}

}  // namespace ztrain::plan
