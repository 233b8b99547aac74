#pragma once
// A device that works until it is told to stop: work that was given to it after that never ends.

#include <chrono>
#include <vector>

#include "base/error.hpp"
#include "tests/support/forwarding_device.hpp"

namespace ztrain::test {

class StuckDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  /// Of the events that are recorded from now on only the first few are ever done. Whoever asks for others
  /// for so long is told that it is enough: Error.
  void stop_after(int events, std::chrono::milliseconds patience) {
    left_ = events;
    patience_ = patience;
    stuck_ = true;
  }

  runtime::Event make_event(bool timed) override {
    ends_.push_back(true);
    return inner().make_event(timed);
  }
  void record(runtime::Event event, runtime::Queue queue) override {
    inner().record(event, queue);
    ends_[static_cast<std::size_t>(event)] = !stuck_ || left_-- > 0;
  }
  bool done(runtime::Event event) override {
    if (ends_[static_cast<std::size_t>(event)]) {
      inner().synchronize(event);
      return true;
    }
    const auto now = std::chrono::steady_clock::now();
    if (first_ == std::chrono::steady_clock::time_point{}) first_ = now;
    if (now - first_ > patience_) fail("the device is stuck");
    return false;
  }

 private:
  std::vector<bool> ends_;  ///< by event: as it was last recorded
  bool stuck_ = false;
  int left_ = 0;
  std::chrono::milliseconds patience_{0};
  std::chrono::steady_clock::time_point first_;
};

}  // namespace ztrain::test
