#pragma once
// Tells whether work given to a queue has run, for the host, which queues and events do not order.

#include "runtime/device/device.hpp"

namespace ztrain::runtime {

class QueueEnd {
 public:
  QueueEnd(Device& device, Queue queue) : device_(device), queue_(queue), event_(device.make_event()) {}

  /// Marks everything that the queue was given before now.
  void mark() {
    device_.record(event_, queue_);
    marked_ = true;
  }
  void forget() { marked_ = false; }
  bool reached() {
    if (!marked_) mark();
    return device_.done(event_);
  }
  void wait() {
    if (!marked_) mark();
    device_.synchronize(event_);
  }

 private:
  Device& device_;
  Queue queue_;
  Event event_;
  bool marked_ = false;
};

}  // namespace ztrain::runtime
