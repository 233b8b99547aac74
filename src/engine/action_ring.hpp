#pragma once
// What a rank has begun last, for a watchdog on another thread.

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "layout/mesh.hpp"

namespace ztrain::engine {

/// The ops that an executor has begun last, each with its number among all that it ever began: run after run
/// of one Program, so that ranks with the same Program count alike. One thread writes, any may read.
class ActionRing {
 public:
  void begin(std::int64_t sequence) {
    const std::uint64_t count = count_.load(std::memory_order_relaxed);
    slots_[count % length].store(sequence, std::memory_order_relaxed);
    count_.store(count + 1, std::memory_order_release);
  }
  /// The newest last. While ops begin meanwhile the oldest may be missing.
  std::vector<std::int64_t> last() const {
    const std::uint64_t count = count_.load(std::memory_order_acquire);
    std::vector<std::int64_t> found;
    for (std::uint64_t i = count > length ? count - length : 0; i < count; ++i)
      found.push_back(slots_[i % length].load(std::memory_order_relaxed));
    return found;
  }

 private:
  static constexpr std::size_t length = 128;
  std::array<std::atomic<std::int64_t>, length> slots_{};
  std::atomic<std::uint64_t> count_{0};
};

/// Where an executor is in its Program.
struct Standing {
  std::string program;            ///< "" where it was never begun
  std::uint64_t fingerprint = 0;  ///< equal for ranks whose Programs have the same ops in the same order
  bool under_way = false;
  std::int64_t sequence = -1;  ///< of the op that the host is at, or was at last
  std::string at;              ///< as Executor::position() words it, or what is known of the device
  /// The communication whose end the host waits for: its number, -1 for none.
  std::int64_t waits_for = -1;
  std::string waits_for_what;  ///< "gather model.layers.2"
  AxisSet axes;                ///< over which it is
  int peer = -1;               ///< of a message: the other side's index there
  std::vector<std::string>
      last;  ///< actions begun last, "1234 forward model.layers.0 micro 0"; the newest last
};

}  // namespace ztrain::engine
