#include "plan/trace/step_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>

#include "base/shape.hpp"
#include "plan/rates/op_time.hpp"
#include "plan/trace/memory_track.hpp"
#include "program/loops/repeat.hpp"

namespace ztrain::plan {
namespace {

using program::Op;
using program::OpId;
using program::Program;
using program::Stream;

/// Communications of one stream that are under way at once have a track each.
constexpr int tracks_of_stream = 8;

int thread_of(Stream stream, int lane) {
  return 1 + static_cast<int>(stream) * tracks_of_stream + lane;
}

/// The micro-batches whose ops are drawn one by one: so many at either end; -1: all.
struct Shown {
  int ends = -1, micro_batches = 0;
  bool has(const Op& op) const {
    const int micro = op.action.micro;
    return ends < 0 || micro < ends || micro >= micro_batches - ends;
  }
};

Shown shown_of(const Program& step, std::int64_t most) {
  Shown shown;
  for (const Op& op : step.ops) shown.micro_batches = std::max(shown.micro_batches, op.action.micro + 1);
  const auto too_many = [&] {
    return std::ranges::count_if(step.ops, [&](const Op& op) { return shown.has(op); }) > most;
  };
  if (std::ssize(step.ops) <= most) return shown;
  shown.ends = 64;
  while (shown.ends > 1 && too_many()) shown.ends /= 2;
  return shown;
}

/// Ops of a stream that are drawn together.
struct Together {
  std::int64_t begin = 0, end = 0;
  int first = 0, last = 0, ops = 0;       ///< micro-batches, and number of ops
  std::map<std::string, double> seconds;  ///< by action and op type
};

class StepTrace {
 public:
  StepTrace(TraceFile& trace, const TracedStep& traced)
      : trace_(trace),
        traced_(traced),
        step_(traced.step),
        shown_(shown_of(traced.step, traced.slices)),
        filled_(filled_rows(traced.step)),
        drawn_(traced.step.ops.size()) {}

  int run() {
    for (OpId id = 0; id < static_cast<OpId>(drawn_.size()); ++id)
      if (shown_.has(step_.op(id)))
        add(id);
      else
        put_together(id);
    for (int s = 0; s < program::stream_count; ++s) end_together(static_cast<Stream>(s));
    add_gaps();
    draw_slices();
    draw_arrows();
    for (int t = 0; t < program::tier_count; ++t) draw_memory(static_cast<program::Tier>(t));
    return shown_.ends;
  }

 private:
  struct Slice {
    Stream stream;
    std::int64_t begin = 0, end = 0;
    std::string name, args;
    std::string_view category;
    OpId op = -1;  ///< -1: none of its own
  };
  /// Where the slice of an op is. thread -1: it has none of its own.
  struct Drawn {
    int thread = -1;
    std::int64_t begin = 0, end = 0;
  };

  std::int64_t time(double seconds) const { return nanoseconds(seconds - traced_.zero); }
  static std::size_t index(Stream stream) { return static_cast<std::size_t>(stream); }

  void add(OpId id) {
    const Op& op = step_.op(id);
    const program::OpTime& times = traced_.times.ops[at(id)];
    end_together(op.stream);
    slices_.push_back({op.stream, time(times.begin), time(times.end), op.name.empty() ? op.type : op.name,
                       facts_of(id), name_of(op.action.kind), id});
  }

  std::string facts_of(OpId id) const {
    const Op& op = step_.op(id);
    const BytesByTier touched = bytes_touched(step_, op, filled_);
    const double bytes = op.communicates() ? static_cast<double>(op.comm.sent_bytes)
                                           : std::accumulate(touched.begin(), touched.end(), 0.0);
    return fmt::format(
        R"({{"op":{},"type":{},"action":"{}","micro":{},"of":{},"bytes":{:.0f},"flops":{:.0f}}})", id,
        json_quoted(op.type), name_of(op.action.kind), op.action.micro,
        json_quoted(program::place_of_issue(step_, id)), bytes, op.flops);
  }

  void put_together(OpId id) {
    const Op& op = step_.op(id);
    const program::OpTime& times = traced_.times.ops[at(id)];
    auto& together = together_[index(op.stream)];
    if (!together) together = Together{time(times.begin), 0, op.action.micro, op.action.micro, 0, {}};
    together->end = std::max(together->end, time(times.end));
    together->first = std::min(together->first, op.action.micro);
    together->last = std::max(together->last, op.action.micro);
    ++together->ops;
    together->seconds[fmt::format("{} {}", name_of(op.action.kind), op.type)] += times.end - times.begin;
  }

  void end_together(Stream stream) {
    auto& together = together_[index(stream)];
    if (!together) return;
    std::string seconds;
    for (const auto& [what, value] : together->seconds)
      seconds += fmt::format("{}{}:{:.9f}", seconds.empty() ? "" : ",", json_quoted(what), value);
    slices_.push_back(
        {stream, together->begin, together->end,
         fmt::format("{} ops of micro-batches {} to {}", together->ops, together->first, together->last),
         fmt::format(R"({{"seconds":{{{}}}}})", seconds), "together"});
    if (stream == Stream::compute) covered_.emplace_back(together->begin, together->end);
    together.reset();
  }

  std::string gap_name(const program::Gap& gap) const {
    const std::string of = program::place_of_issue(step_, gap.issue);
    switch (gap.kind) {
      case program::GapKind::wait:
        return "waits for " + of;
      case program::GapKind::launch:
        return "waits for the host to launch";
      case program::GapKind::start:
        return "starts " + of;
      case program::GapKind::progress:
        return "moves " + of;
    }
    return of;
  }

  void add_gaps() {
    for (const program::Gap& gap : traced_.times.gaps) {
      const std::int64_t begin = time(gap.begin), end = time(gap.end);
      const auto after =
          std::ranges::upper_bound(covered_, begin, {}, &std::pair<std::int64_t, std::int64_t>::second);
      if (end <= begin || (after != covered_.end() && after->first < end)) continue;
      const bool waits = gap.kind == program::GapKind::wait || gap.kind == program::GapKind::launch;
      const Op& op = step_.op(gap.issue);
      slices_.push_back(
          {Stream::compute, begin, end, gap_name(gap),
           fmt::format(R"({{"op":{},"type":{},"action":"{}","kind":"{}","communicates":{}}})", gap.issue,
                       json_quoted(op.type), name_of(op.action.kind),
                       gap.kind == program::GapKind::launch ? "launch" : "op", op.communicates()),
           waits ? "wait" : "drive"});
    }
  }

  /// Each goes to the first track of its stream that is free then.
  void draw_slices() {
    std::ranges::stable_sort(slices_, {}, &Slice::begin);
    std::array<std::array<std::int64_t, tracks_of_stream>, program::stream_count> free_at;
    for (auto& lanes : free_at) lanes.fill(-1);
    for (const Slice& slice : slices_) {
      auto& lanes = free_at[index(slice.stream)];
      int lane = 0;
      while (lane + 1 < tracks_of_stream && lanes[at(lane)] > slice.begin) ++lane;
      const Track track{traced_.process, thread_of(slice.stream, lane)};
      if (lanes[at(lane)] < 0)
        trace_.name_thread(track, lane == 0 ? std::string(name_of(slice.stream))
                                            : fmt::format("{} {}", name_of(slice.stream), lane + 1));
      lanes[at(lane)] = slice.end;
      trace_.slice(track, slice.name, slice.category, slice.begin, slice.end, slice.args);
      if (slice.op >= 0) drawn_[at(slice.op)] = {track.thread, slice.begin, slice.end};
    }
  }

  void draw_arrows() {
    for (std::size_t op = 0; op < drawn_.size(); ++op) {
      const OpId cause = traced_.times.ops[op].cause;
      if (cause < 0 || drawn_[op].thread < 0) continue;
      const Drawn &from = drawn_[at(cause)], &to = drawn_[op];
      if (from.thread >= 0 && from.end <= to.begin)
        trace_.arrow({traced_.process, from.thread}, std::max(from.begin, from.end - 1),
                     {traced_.process, to.thread}, to.begin);
    }
  }

  static std::string by_category(const MemoryPoint& point,
                                 const std::array<bool, program::category_count>& used) {
    std::string text;
    for (int c = 0; c < program::category_count; ++c)
      if (used[at(c)])
        text += fmt::format("{}\"{}\":{}", text.empty() ? "" : ",",
                            name_of(static_cast<program::Category>(c)), point.bytes[at(c)]);
    return text;
  }

  void draw_memory(program::Tier tier) {
    MemoryTrack track = memory_track(step_, traced_.times, tier, traced_.begin);
    if (track.points.empty()) return;
    thin_out(track, static_cast<std::size_t>(traced_.points));
    std::array<bool, program::category_count> used{};
    for (const MemoryPoint& point : track.points)
      for (std::size_t c = 0; c < used.size(); ++c) used[c] = used[c] || point.bytes[c] != 0;
    const std::string name = fmt::format("memory ({})", name_of(tier));
    for (const MemoryPoint& point : track.points) {
      trace_.counter(traced_.process, name, time(point.when), "{" + by_category(point, used) + "}");
      trace_.counter(traced_.process, name + " in all", time(point.when),
                     fmt::format(R"({{"bytes":{}}})", point.total()));
    }
    const MemoryPoint& peak = track.points[track.peak];
    std::string largest;
    for (const auto& [tensor, bytes] : track.at_peak)
      largest += fmt::format("{}{}:{}", largest.empty() ? "" : ",", json_quoted(tensor), bytes);
    trace_.mark(traced_.process, "peak of " + name, time(peak.when),
                fmt::format(R"({{"tier":"{}","bytes":{},"categories":{{{}}},"largest":{{{}}}}})",
                            name_of(tier), peak.total(), by_category(peak, used), largest));
  }

  TraceFile& trace_;
  const TracedStep& traced_;
  const Program& step_;
  Shown shown_;
  FilledRows filled_;
  std::vector<Drawn> drawn_;  ///< by op
  std::vector<Slice> slices_;
  std::array<std::optional<Together>, program::stream_count> together_;
  std::vector<std::pair<std::int64_t, std::int64_t>>
      covered_;  ///< of the stream that computes: begins and ends
};

}  // namespace

int add_step(TraceFile& trace, const TracedStep& step) {
  return StepTrace(trace, step).run();
}

}  // namespace ztrain::plan
