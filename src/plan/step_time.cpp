#include "plan/step_time.hpp"

#include <algorithm>
#include <bit>
#include <deque>
#include <functional>
#include <iterator>
#include <map>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernels/elementwise/record.hpp"
#include "program/loops/repeat.hpp"

namespace ztrain::plan {
namespace {

using program::Op;
using program::OpId;
using program::Program;
using program::Stream;
using program::Tier;
using BytesByTier = std::array<double, program::tier_count>;

double memory_seconds(const Program& p, const Op& op, const Machine& m) {
  const BytesByTier bytes = bytes_touched(p, op);
  const auto of = [&](Tier tier) { return bytes[static_cast<std::size_t>(tier)]; };
  const double host = of(Tier::device) > 0 ? m.host_bandwidth : m.host_memory_bandwidth;
  return std::max({of(Tier::device) / (m.memory_bandwidth * m.memory_efficiency), of(Tier::host) / host,
                   of(Tier::nvme) / m.nvme_bandwidth});
}

/// What the host computes has a processor of its own only where others compute on a device.
Stream stream_of(const Program& p, const Op& op) {
  return p.target == Target::cpu && op.stream == Stream::host ? Stream::compute : op.stream;
}

double compute_seconds(const Program& p, const Op& op, const Machine& m) {
  if (op.flops == 0) return 0;
  const bool fp8 = !op.inputs.empty() && is_fp8(p.tensor(op.inputs[0]).dtype);
  const double speedup = fp8 ? m.fp8_speedup : 1;
  return op.flops / (m.peak_flops * speedup * m.compute_efficiency * m.computing_share);
}

/// Between two ranks.
double message_seconds(const Program& p, const Op& op, const Machine& m) {
  const auto& ids = op.comm.kind == program::CommKind::send ? op.inputs : op.outputs;
  const double bytes = ids.empty() ? 0.0 : static_cast<double>(p.tensor(ids[0]).bytes());
  return bytes / (stays_on_node(p, op, m.ranks_per_node) ? m.intra_node_bandwidth : m.inter_node_bandwidth) +
         m.latency;
}

/// One after another: a tree over the members, or a shift's one message.
int exchanges_of(const Op& op, int members) {
  return op.comm.kind == program::CommKind::shift ? 1 : std::bit_width(static_cast<unsigned>(members - 1));
}

double collective_seconds(const Program& p, const Op& op, const GroupPlace& place, const Machine& m) {
  if (place.members < 2) return 0;
  double seconds = 0;
  if (place.on_node > 1) seconds = static_cast<double>(op.comm.sent_bytes) / m.intra_node_bandwidth;
  if (place.members > place.on_node)
    seconds = std::max(seconds, bytes_out_of_node(p, op, place, m.ranks_per_node) / m.inter_node_bandwidth);
  return seconds + m.latency * exchanges_of(op, place.members);
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
  Clock(const Program& program, const Machine& machine, int times, Messages* messages = nullptr)
      : program_(program),
        machine_(machine),
        messages_(messages),
        issues_(program, times),
        end_(at(issues_.size()), 0),
        cause_(at(issues_.size()), -1) {
    last_.fill(-1);
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
    const OpId tail = last_[static_cast<std::size_t>(stream_of(program_, issues_.op(id)))];
    bool known = tail < 0 || end_[at(tail)] != unknown;
    issues_.each_before(id, [&](OpId before) { known = known && end_[at(before)] != unknown; });
    return known;
  }

  void step(OpId id) {
    const Op& op = issues_.op(id);
    const Stream stream = stream_of(program_, op);
    OpId& tail = last_[static_cast<std::size_t>(stream)];
    if (stream != Stream::host) issued_ += machine_.launch;
    const double free = std::max(tail < 0 ? 0 : end_[at(tail)], issued_);
    OpId cause = tail;
    double start = free;
    issues_.each_before(id, [&](OpId before) {
      if (end_[at(before)] > start) start = end_[at(before)], cause = before;
    });
    if (messages_ != nullptr && is_message(op)) {
      cause_[at(id)] = cause;
      tail = id;
      return exchange(id, start);
    }
    double seconds = 0;
    if (op.communicates() && !is_message(op)) {
      const GroupPlace& place = place_for(op);
      seconds = collective_seconds(program_, op, place, machine_);
      if (seconds > 0) occupy_links(place, seconds, id, start, cause);
    } else {
      seconds = duration_of(program_, op, machine_);
    }
    if (stream == Stream::compute) expose_wait(free, start, cause);
    if (messages_ != nullptr && seconds > 0) result_.work.add(issues_.action(id), start, start + seconds);
    end_[at(id)] = start + seconds;
    cause_[at(id)] = cause;
    tail = id;
    result_.busy[static_cast<std::size_t>(stream)][static_cast<std::size_t>(op.action.kind)] += seconds;
    result_.flops += op.flops;
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

  /// From the first time at or after `start` at which all links that the group uses are free.
  void occupy_links(const GroupPlace& place, double seconds, OpId id, double& start, OpId& cause) {
    std::array<Timetable*, 2> used{};
    if (place.on_node > 1) used[0] = &in_node_;
    if (place.members > place.on_node) used[1] = &out_of_node_;
    for (bool moved = true; moved;) {
      moved = false;
      for (const Timetable* link : used) {
        if (link == nullptr) continue;
        const Timetable::Slot slot = link->earliest(start, seconds);
        if (slot.start > start) start = slot.start, cause = slot.after, moved = true;
      }
    }
    for (Timetable* link : used)
      if (link != nullptr) link->take(start, seconds, id);
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
  OpId next_ = 0;
  double issued_ = 0;        ///< when the host has issued what came so far
  program::Issues issues_;   ///< an OpId here is a place among them
  std::vector<double> end_;  ///< by op
  std::vector<OpId> cause_;  ///< the op whose end let it start
  std::array<OpId, program::stream_count> last_{};
  std::map<std::uint32_t, GroupPlace> places_;  ///< by axes
  Timetable in_node_, out_of_node_;             ///< links of this rank
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

// A workspace is a reservation; padding is cleared piece by piece.
BytesByTier bytes_touched(const Program& p, const Op& op) {
  BytesByTier bytes{};
  if (op.type == program::Release::op) return bytes;
  if (op.type == program::ZeroGaps::op) {
    const program::Tensor& t = p.tensor(op.outputs[0]);
    for (const program::Elements& gap : record_of<program::ZeroGaps>(op.attributes).gaps)
      bytes[static_cast<std::size_t>(t.tier)] += static_cast<double>(gap.count * size_of(t.dtype));
    return bytes;
  }
  for (const auto* ids : {&op.inputs, &op.outputs})
    for (const program::TensorId id : *ids) {
      const program::Tensor& t = p.tensor(id);
      if (t.category == program::Category::workspace) continue;
      bytes[static_cast<std::size_t>(p.tensor(p.storage(id)).tier)] += static_cast<double>(t.bytes());
    }
  return bytes;
}

double duration_of(const Program& p, const Op& op, const Machine& m) {
  if (!op.communicates()) return std::max(compute_seconds(p, op, m), memory_seconds(p, op, m));
  if (is_message(op)) return message_seconds(p, op, m);
  const GroupPlace place = place_of(Coordinate(p.mesh, p.rank), op.comm.axes, m.ranks_per_node);
  return collective_seconds(p, op, place, m);
}

std::vector<Simulation> simulate_stages(const std::vector<const Program*>& programs, const Machine& machine) {
  Messages messages;
  std::deque<Clock> clocks;
  for (const Program* program : programs)
    clocks.emplace_back(*program, machine, program->repeat.times, &messages);
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
