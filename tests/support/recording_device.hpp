#pragma once
// A device that runs nothing and writes down what happens before what.

#include <array>
#include <vector>

#include "base/error.hpp"
#include "runtime/device/device.hpp"

namespace ztrain::test {

using runtime::Event;
using runtime::Graph;
using runtime::Queue;

class RecordingDevice : public runtime::Device {
 public:
  /// Works of each queue, counted.
  using Clock = std::array<int, runtime::queue_count>;
  struct Work {
    Queue queue;
    Clock before;  ///< works that are over when it starts
    int number;    ///< within its queue, from 1
  };

  /// Submitted work, in order.
  const std::vector<Work>& works() const { return works_; }
  /// How often the host waited or asked.
  int host_waits() const { return host_waits_; }
  bool before(std::size_t earlier, std::size_t later) const {
    const Work& e = works_[earlier];
    return works_[later].before[static_cast<std::size_t>(e.queue)] >= e.number;
  }

  const std::string& name() const override { return name_; }
  const std::string& identity() const override { return name_; }
  bool asynchronous() const override { return true; }
  memory::Provider& memory() override { return memory::host_memory(); }
  memory::Provider& staging() override { return memory::host_memory(); }
  void* native_stream(Queue) const override { return nullptr; }
  void submit(Queue queue, const std::function<void()>&) override {
    Clock& clock = now_[static_cast<std::size_t>(queue)];
    works_.push_back({queue, clock, ++clock[static_cast<std::size_t>(queue)]});
  }
  void run_on_host(Queue queue, const std::function<void()>& work) override { submit(queue, work); }
  Event make_event(bool) override {
    events_.push_back({});
    return static_cast<Event>(events_.size() - 1);
  }
  void record(Event event, Queue queue) override {
    events_[static_cast<std::size_t>(event)] = now_[static_cast<std::size_t>(queue)];
  }
  void wait(Queue queue, Event event) override {
    Clock& clock = now_[static_cast<std::size_t>(queue)];
    const Clock& other = events_[static_cast<std::size_t>(event)];
    for (std::size_t q = 0; q < clock.size(); ++q) clock[q] = std::max(clock[q], other[q]);
    ++waits_;
  }
  int waits() const { return waits_; }
  void copy_in(Queue, void*, const void*, std::int64_t) override { fail("not used"); }
  void copy_out(Queue, void*, const void*, std::int64_t) override { fail("not used"); }
  bool done(Event) override { return ++host_waits_ > 0; }
  void synchronize(Event) override { ++host_waits_; }
  void finish() override { ++host_waits_; }
  std::optional<double> seconds(Event, Event) override { return std::nullopt; }
  bool captures() const override { return false; }
  void begin_capture(Queue) override { fail("not used"); }
  Graph end_capture(Queue) override { fail("not used"); }
  void launch(Graph, Queue) override { fail("not used"); }

 private:
  std::string name_;
  std::array<Clock, runtime::queue_count> now_{};
  std::vector<Clock> events_;
  std::vector<Work> works_;
  int host_waits_ = 0, waits_ = 0;
};

}  // namespace ztrain::test
