#pragma once
// The device that a rank computes on, as its host thread sees it: in-order queues of work, events that order
// queues among each other, and memory. One host thread uses a Device.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "memory/provider.hpp"

namespace ztrain::runtime {

/// Number of a queue, from 0; the executor uses one for each stream of a Program.
using Queue = int;
inline constexpr int queue_count = 17;
/// Queue of kernels; host copies are ordered with it.
inline constexpr Queue compute_queue = 0;

/// A point in a queue's work, set anew each time it is recorded. Events are made once, before the steps.
using Event = int;
/// A captured run of work.
using Graph = int;

class Device {
 public:
  virtual ~Device() = default;

  /// Returns a name such as "NVIDIA H100 80GB HBM3" or "CPU".
  virtual const std::string& name() const = 0;
  /// Returns the identity of the hardware, equal for ranks of a node that share it; "" if the rank has none
  /// of its own.
  virtual const std::string& identity() const = 0;
  /// Returns whether work runs later than it is submitted. If not, events need not be made.
  virtual bool asynchronous() const = 0;
  /// Memory that kernels work on. For CPU ranks it is the host's.
  virtual memory::Provider& memory() = 0;
  /// Host memory that the device copies from and to without the host's help (pinned).
  virtual memory::Provider& staging() = 0;
  /// Returns the number of the GPU's multiprocessors; 0 for none.
  virtual int multiprocessors() const { return 0; }
  /// Returns the cudaStream_t of a queue; null on CPUs.
  virtual void* native_stream(Queue queue) const = 0;

  // Work. None of these functions waits for the device, allocates, or throws for an error of work that runs
  // later. Such an error is thrown by the next synchronize() or finish().
  /// Issues work to a queue. `work` calls kernels on native_stream(queue). It must live until it has run; if
  /// it is captured, as long as the graph.
  virtual void submit(Queue queue, const std::function<void()>& work) = 0;
  /// Issues work for the host's processor. It begins once the queue has done what it was given before, on a
  /// thread of the driver, while other queues go on. It must not call the device or throw.
  virtual void run_on_host(Queue queue, const std::function<void()>& work) = 0;
  /// Makes an event, which lives as long as the device.
  virtual Event make_event(bool timed = false) = 0;
  /// Sets the event to all work submitted to the queue so far.
  virtual void record(Event event, Queue queue) = 0;
  /// Makes later work of the queue start after the event as it was last recorded.
  virtual void wait(Queue queue, Event event) = 0;
  /// Copies as work of the queue. `host` is memory of staging().
  virtual void copy_in(Queue queue, void* to, const void* host, std::int64_t bytes) = 0;
  virtual void copy_out(Queue queue, void* host, const void* from, std::int64_t bytes) = 0;

  // The host waits. An event that was never recorded counts as done.
  virtual bool done(Event event) = 0;
  virtual void synchronize(Event event) = 0;
  /// Forgets errors that calls have already reported to their callers. A library that probes what the device
  /// can do leaves such errors behind, and the next submit() would report them.
  virtual void forget_errors() {}
  /// Waits until all queues are empty.
  virtual void finish() = 0;
  /// Returns the seconds between two timed events that are done. Returns nothing if either was not recorded
  /// outside of a capture, or if events take no time (CPUs run work as it is submitted).
  virtual std::optional<double> seconds(Event from, Event to) = 0;

  // Capture. Work submitted between begin and end is recorded instead of run. Other queues join by waiting
  // for an event of the captured one, and must be joined back before the end. Inside, queues wait for events
  // of the same capture alone; outside, for none of them.
  /// Returns whether the device captures; if not, the others may not be called.
  virtual bool captures() const = 0;
  virtual void begin_capture(Queue queue) = 0;
  virtual Graph end_capture(Queue queue) = 0;
  virtual void launch(Graph graph, Queue queue) = 0;
  /// Destroys a graph that is not launched any more. NCCL's communicators cannot end before the graphs that
  /// use them.
  virtual void destroy(Graph) noexcept {}
};

/// Makes the device of CPU ranks, which runs all work on the calling thread when it is submitted.
std::unique_ptr<Device> make_host_device();

/// Makes a device that plays a GPU on CPU ranks. It runs work on the calling thread, as late as it may, in an
/// order drawn from the seed that obeys queues and events alone. It closes its memory to the host in between.
/// A missing dependency or a stray host access then shows.
std::unique_ptr<Device> make_deferred_device(std::uint64_t seed);

/// Makes the device of the build. In a CUDA build it is the local_rank-th visible GPU, or the only one; if
/// there are fewer GPUs, ranks share them by turns. Throws Error that says what is missing if there is no
/// GPU. Other builds return make_host_device().
std::unique_ptr<Device> make_device(int local_rank);

/// Returns whether make_device makes a GPU.
bool built_for_gpus();

/// Tells the host, which queues and events do not order, whether work given to a queue has run.
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
