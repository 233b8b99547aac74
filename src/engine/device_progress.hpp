#pragma once
// How far a device is with a Program that it was given: known only by asking it, which the host does where it
// would else wait, and told to a watchdog on another thread.

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "engine/timings.hpp"

namespace ztrain::engine {

/// Follows the stretches of an EventTimer, each of some ops of one queue.
class DeviceProgress {
 public:
  // Before the steps, in the order of the ops.
  void begin(EventTimer::Stretch stretch, runtime::Queue queue, program::OpId op);
  /// The queue's last stretch has this op too.
  void extend(runtime::Queue queue, program::OpId op);

  // The thread that uses the device.
  /// A run begins.
  void clear();
  /// Asks the device; never waits.
  void observe(EventTimer& timer);

  /// Any thread. "compute is at forward model.layers.3 micro 0: linear ... (op 41); gather is to begin ...";
  /// "" where nobody has observed since clear().
  std::string text(const program::Program& program) const;
  /// Any thread. The first op of the compute queue, else of another, that is not known to be done; -1 where
  /// nobody has observed since clear(), or all that has clocks is done.
  program::OpId at() const;

 private:
  enum class State : std::uint8_t { unknown, all_done, to_begin, begun };
  struct Stretch {
    EventTimer::Stretch clock;
    program::OpId first, last;
  };
  struct Queue {
    std::vector<Stretch> stretches;
    std::atomic<std::size_t> at{0};  ///< the first that is not known to be done
    std::atomic<State> state{State::unknown};
  };
  void observe(EventTimer& timer, Queue& queue);

  std::array<Queue, runtime::queue_count> queues_;
};

}  // namespace ztrain::engine
