#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/shape.hpp"
#include "runtime/device/closed_memory.hpp"
#include "runtime/device/deferred_work.hpp"
#include "runtime/device/device.hpp"

namespace ztrain::runtime {
namespace {

/// Tasks that were submitted during a capture, in that order.
struct Captured {
  std::vector<std::pair<Queue, Task>> tasks;
  std::vector<std::shared_ptr<Mark>> marks;
};

/// A capture under way.
struct Capture {
  Queue origin;
  std::array<bool, queue_count> joined{};
  std::array<std::array<std::int64_t, queue_count>, queue_count> known{};  ///< by queue: as Mark::known
};

class DeferredDevice final : public Device {
 public:
  explicit DeferredDevice(std::uint64_t seed) : random_(seed), memory_([this] { return work_.empty(); }) {}

  const std::string& name() const override { return name_; }
  const std::string& identity() const override { return identity_; }
  bool asynchronous() const override { return true; }
  memory::Provider& memory() override { return memory_; }
  memory::Provider& staging() override { return memory::host_memory(); }
  void* native_stream(Queue) const override { return nullptr; }

  void submit(Queue queue, const std::function<void()>& work) override {
    push_work(queue, [&work] { work(); });
  }
  void run_on_host(Queue queue, const std::function<void()>& work) override {
    push_work(queue, [this, &work] {
      const ClosedMemory::Closed closed(memory_);
      work();
    });
  }
  Event make_event(bool) override {
    events_.push_back(nullptr);
    return static_cast<Event>(events_.size() - 1);
  }
  void record(Event event, Queue queue) override {
    auto mark = std::make_shared<Mark>();
    mark->queue = queue;
    mark->number = submitted_;
    if (captured(queue)) {
      mark->capture = static_cast<Graph>(graphs_.size() - 1);
      mark->known = capture_->known[at(queue)];
      graphs_.back()->marks.push_back(mark);
    }
    events_[at(event)] = mark;
    push(queue, {0,
                 [mark] {
                   mark->done = true;
                   mark->seconds = now();
                 },
                 nullptr});
  }
  void wait(Queue queue, Event event) override {
    const std::shared_ptr<Mark>& mark = events_[at(event)];
    if (!mark) return;
    const bool of_this_capture = capture_ && mark->capture == static_cast<Graph>(graphs_.size() - 1);
    REQUIRE(mark->capture < 0 || of_this_capture,
            "queue {} waits for an event that was recorded in a capture which has ended", queue);
    REQUIRE(of_this_capture || !captured(queue),
            "queue {}, which is captured, waits for an event from outside of the capture", queue);
    if (of_this_capture) {
      capture_->joined[at(queue)] = true;
      auto& known = capture_->known[at(queue)];
      for (std::size_t q = 0; q < queue_count; ++q) known[q] = std::max(known[q], mark->known[q]);
    }
    push(queue, {0, nullptr, mark});
  }
  void copy_in(Queue queue, void* to, const void* host, std::int64_t bytes) override {
    push_work(queue, [=] { std::memcpy(to, host, static_cast<std::size_t>(bytes)); });
  }
  void copy_out(Queue queue, void* host, const void* from, std::int64_t bytes) override {
    push_work(queue, [=] { std::memcpy(host, from, static_cast<std::size_t>(bytes)); });
  }

  bool done(Event event) override {
    require_no_capture("the host asks for an event");
    const Mark* const mark = mark_of(event);
    if (!mark || mark->done) return true;
    // Repeated questions get a true answer in the end.
    if (random_() % 2 == 0) {
      const ClosedMemory::Opened open(memory_);
      work_.run_one(random_);
    }
    return mark->done;
  }
  void synchronize(Event event) override {
    require_no_capture("the host waits for an event");
    const Mark* const mark = mark_of(event);
    if (!mark || mark->done) return;
    const ClosedMemory::Opened open(memory_);
    work_.run_until(*mark, random_);
  }
  void finish() override {
    require_no_capture("the host waits for the device");
    const ClosedMemory::Opened open(memory_);
    work_.run_all(random_);
  }
  std::optional<double> seconds(Event from, Event to) override {
    const std::shared_ptr<Mark>&begin = events_[at(from)], &end = events_[at(to)];
    if (!begin || !end || begin->capture >= 0 || end->capture >= 0) return std::nullopt;
    REQUIRE(begin->done && end->done, "the time between two events is asked for before they are done");
    return end->seconds - begin->seconds;
  }

  bool captures() const override { return true; }
  void begin_capture(Queue queue) override {
    require_no_capture("a capture begins");
    graphs_.push_back(std::make_unique<Captured>());
    capture_.emplace(Capture{queue, {}, {}});
    capture_->joined[at(queue)] = true;
  }
  Graph end_capture(Queue queue) override {
    REQUIRE(capture_ && capture_->origin == queue, "no capture has begun on queue {}", queue);
    const Capture capture = *capture_;
    capture_.reset();
    for (std::size_t q = 0; q < queue_count; ++q)
      REQUIRE(capture.known[at(queue)][q] == capture.known[q][q],
              "the capture ends while queue {} is not joined back", q);
    return static_cast<Graph>(graphs_.size() - 1);
  }
  void launch(Graph graph, Queue queue) override {
    push_work(queue, [this, &captured = *graphs_[at(graph)]] { replay(captured); });
  }

 private:
  bool captured(Queue queue) const { return capture_ && capture_->joined[at(queue)]; }
  void push(Queue queue, Task task) {
    task.number = submitted_++;
    if (captured(queue))
      graphs_.back()->tasks.emplace_back(queue, std::move(task));
    else
      work_.push(queue, std::move(task));
  }
  void push_work(Queue queue, std::function<void()> run) {
    if (captured(queue)) ++capture_->known[at(queue)][at(queue)];
    push(queue, {0, std::move(run), nullptr});
  }
  /// Returns the event as it was last recorded outside of captures; null: never.
  const Mark* mark_of(Event event) const {
    const Mark* const mark = events_[at(event)].get();
    REQUIRE(!mark || mark->capture < 0, "the host waits for an event that was recorded in a capture");
    return mark;
  }
  /// Runs a whole graph between two tasks of the other queues.
  void replay(Captured& graph) {
    DeferredWork work;
    for (const auto& mark : graph.marks) mark->done = false;
    for (const auto& [queue, task] : graph.tasks) work.push(queue, task);
    work.run_all(random_);
  }
  void require_no_capture(const char* what) const { REQUIRE(!capture_, "{} while work is captured", what); }

  std::string name_ = "CPU, work deferred", identity_;
  std::mt19937_64 random_;
  ClosedMemory memory_;
  DeferredWork work_;
  std::int64_t submitted_ = 0;
  std::vector<std::shared_ptr<Mark>> events_;  ///< null: never recorded
  std::vector<std::unique_ptr<Captured>> graphs_;
  std::optional<Capture> capture_;  ///< capture that makes the last of graphs_
};

}  // namespace

std::unique_ptr<Device> make_deferred_device(std::uint64_t seed) {
  return std::make_unique<DeferredDevice>(seed);
}

}  // namespace ztrain::runtime
