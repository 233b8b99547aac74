#pragma once
// How long ops take.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "program/ir/program.hpp"
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

}  // namespace ztrain::engine
