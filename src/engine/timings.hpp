#pragma once
// How long ops take.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/shape.hpp"
#include "program/ir/program.hpp"
#include "program/ir/step_times.hpp"
#include "runtime/device/device.hpp"

namespace ztrain::engine {

/// Seconds spent since the last clear, by kind of action. Waiting is not part of an action's seconds. Work
/// that is replayed as a CUDA graph is not timed.
struct Timings {
  std::array<double, program::action_kind_count> seconds{};
  /// Nothing was computed because a communication had not finished.
  double exposed_communication = 0;
  double exposed_drives = 0;     ///< nothing was computed because a transfer from or to NVMe had not finished
  double exposed_messages = 0;   ///< of exposed_communication: messages between stages of the pipeline
  bool by_kind = true;           ///< `seconds` has all of them
  bool by_communication = true;  ///< exposed_communication has all of it
  double of(program::ActionKind kind) const { return seconds[static_cast<std::size_t>(kind)]; }
};

/// Times stretches of a device's queues by events around them.
class EventTimer {
 public:
  using Stretch = int;
  static constexpr Stretch none = -1;

  explicit EventTimer(runtime::Device& device) : device_(device) {}

  /// Made before the steps. Of a kind of action, or (without one) of time in which compute waits.
  Stretch add(runtime::Queue queue, std::optional<program::ActionKind> kind = {});
  // Around the work; for `none` they do nothing.
  void begin(Stretch stretch);
  void end(Stretch stretch);

  /// Where the device is with a stretch of the last run; `unknown` where the stretch had no clock in it.
  enum class Progress : std::uint8_t { unknown, to_begin, begun, done };
  /// Asks the device; never waits.
  Progress progress(Stretch stretch) const;

  /// Adds what was timed since the last call. All of it must be done on the device.
  void collect(Timings& timings);
  void drop();

 private:
  struct Timed {
    runtime::Queue queue;
    std::optional<program::ActionKind> kind;
    runtime::Event from, to;
    bool recorded = false;
  };
  runtime::Device& device_;
  std::vector<Timed> stretches_;
};

/// Notes when the ops of runs begin and end, for traces: where work is done as it is issued. Allocates while
/// it is on; while it is off each call is a test.
class StepRecorder {
 public:
  /// Forgets earlier runs if it is turned on.
  void turn(bool on) {
    if (on) runs_.clear();
    on_ = on;
  }
  const std::vector<program::StepTimes>& runs() const { return runs_; }

  void begin_run(std::int64_t issues) {
    if (on_) runs_.emplace_back().ops.resize(static_cast<std::size_t>(issues));
  }
  void did(program::OpId issue, double begin, double end) {
    if (!on_) return;
    program::OpTime& op = runs_.back().ops[at(issue)];
    op.begin = begin, op.end = end;
  }
  /// A communication has been started, which ends later.
  void started(program::OpId issue, double begin, double end) {
    did(issue, begin, end);
    add(program::GapKind::start, issue, begin, end);
  }
  void moved(program::OpId issue, double begin, double end) {
    if (end - begin > least_move) add(program::GapKind::progress, issue, begin, end);
  }
  /// The host waited for a communication before it came to the op `by`, or behind that op.
  void waited(program::OpId issue, program::OpId by, double begin, double end) {
    if (!on_) return;
    add(program::GapKind::wait, issue, begin, end);
    if (program::OpTime& op = runs_.back().ops[at(by)]; op.end == 0) op.cause = issue;
  }
  void ended(program::OpId issue, double end) {
    if (on_) runs_.back().ops[at(issue)].end = end;
  }

 private:
  static constexpr double least_move = 5e-6;  ///< seconds: shorter ones are many and say nothing

  void add(program::GapKind kind, program::OpId issue, double begin, double end) {
    if (on_) runs_.back().gaps.push_back({kind, issue, begin, end});
  }

  bool on_ = false;
  std::vector<program::StepTimes> runs_;
};

}  // namespace ztrain::engine
