#pragma once
// Runs a collective as work of a device's queue.

#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/comm/comm.hpp"
#include "runtime/device/device.hpp"

namespace ztrain::runtime {

/// State that a communicator on a queue and its collectives share.
struct QueueChannel {
  QueueChannel(Device& on, Queue its_queue) : device(on), queue(its_queue), end(on, its_queue) {}
  Device& device;
  Queue queue;
  QueueEnd end;           ///< end of the collective that was started last
  std::int64_t sent = 0;  ///< payload bytes
};

class QueuedCollective final : public Collective {
 public:
  /// work may be empty. sent counts the payload bytes of one start.
  QueuedCollective(std::shared_ptr<QueueChannel> channel, std::function<void()> work, std::int64_t sent)
      : channel_(std::move(channel)), work_(std::move(work)), sent_(sent) {}

  void start() override {
    channel_->end.forget();
    channel_->sent += sent_;
    if (work_) channel_->device.submit(channel_->queue, work_);
  }
  bool on_device() const override { return true; }
  void replayed() override { channel_->sent += sent_; }
  /// Returns whether this collective has ended, and all work that the queue was given between it and the
  /// question.
  bool test() override { return channel_->end.reached(); }
  void wait() override { channel_->end.wait(); }

 private:
  std::shared_ptr<QueueChannel> channel_;
  std::function<void()> work_;
  std::int64_t sent_;
};

}  // namespace ztrain::runtime
