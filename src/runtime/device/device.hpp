#pragma once
// What a rank computes on, as its host thread sees it: in-order queues of work, events that order queues
// among each other, and memory. One host thread uses a Device.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "memory/provider.hpp"

namespace ztrain::runtime {

/// Queues are numbered 0 .. queues-1; the executor uses one for each stream of a Program.
using Queue = int;
inline constexpr int queue_count = 13;
/// The queue of kernels; host copies are ordered with it.
inline constexpr Queue compute_queue = 0;

/// A place in a queue's work, set anew each time it is recorded. Made once, before the steps.
using Event = int;
/// A captured stretch of work.
using Graph = int;

class Device {
 public:
  virtual ~Device() = default;

  /// "NVIDIA H100 80GB HBM3"; "CPU".
  virtual const std::string& name() const = 0;
  /// Which piece of hardware it is: ranks of a node that share one have the same. "" where there is none of
  /// its own.
  virtual const std::string& identity() const = 0;
  /// Whether work runs later than it is submitted. If not, events need not be made.
  virtual bool asynchronous() const = 0;
  /// Memory that kernels work on. On CPUs the host's.
  virtual memory::Provider& memory() = 0;
  /// Host memory that the device copies from and to without the host's help (pinned).
  virtual memory::Provider& staging() = 0;
  /// Number of the GPU's multiprocessors; 0: it has none.
  virtual int multiprocessors() const { return 0; }
  /// The cudaStream_t of a queue; null on CPUs.
  virtual void* native_stream(Queue queue) const = 0;

  // Work. None of these waits for the device, allocates, or throws for an error of work that runs later; such
  // an error is thrown by the next synchronize() or finish().
  /// Issues work to a queue. `work` calls kernels on native_stream(queue); it must live until it has run, and
  /// where it is captured as long as the graph.
  virtual void submit(Queue queue, const std::function<void()>& work) = 0;
  /// The same for work that the host's processor does, on memory of the host alone: it begins once the queue
  /// is through with what it was given before, on a thread of the driver's, while other queues go on. It
  /// calls nothing of the device and throws nothing.
  virtual void run_on_host(Queue queue, const std::function<void()>& work) = 0;
  /// Lives as long as the device.
  virtual Event make_event(bool timed = false) = 0;
  /// The event now means: all work submitted to the queue so far.
  virtual void record(Event event, Queue queue) = 0;
  /// Later work of the queue starts after the event, as it was last recorded.
  virtual void wait(Queue queue, Event event) = 0;
  /// host: memory of staging(). Ordered as work of the queue.
  virtual void copy_in(Queue queue, void* to, const void* host, std::int64_t bytes) = 0;
  virtual void copy_out(Queue queue, void* host, const void* from, std::int64_t bytes) = 0;

  // The host waits. An event that was never recorded is done.
  virtual bool done(Event event) = 0;
  virtual void synchronize(Event event) = 0;
  /// Forgets errors that calls have already reported to their callers. A library that probes what the device
  /// can do leaves such errors behind, and the next submit() would throw them as its own.
  virtual void forget_errors() {}
  /// Until all queues are empty.
  virtual void finish() = 0;
  /// Between two timed events that are done; nothing where either was not recorded outside of a capture, or
  /// where events take no time (CPUs run work as it is submitted).
  virtual std::optional<double> seconds(Event from, Event to) = 0;

  // Capture: what is submitted between begin and end is recorded instead of run; other queues join by waiting
  // for an event of the captured one, and must be joined back before the end. Inside, queues wait for events
  // of the same capture alone; outside, for none of it.
  /// False where there is nothing like it; then the others may not be called.
  virtual bool captures() const = 0;
  virtual void begin_capture(Queue queue) = 0;
  virtual Graph end_capture(Queue queue) = 0;
  virtual void launch(Graph graph, Queue queue) = 0;
  /// A graph that is launched no more. NCCL's communicators cannot end before the graphs that use them.
  virtual void destroy(Graph) noexcept {}
};

/// Runs all work on the calling thread when it is submitted: CPU ranks.
std::unique_ptr<Device> make_host_device();

/// Runs work on the calling thread, as late as it may and in an order drawn from the seed that obeys queues
/// and events alone, and closes its memory to the host in between: what a GPU would do with a missing
/// dependency or a stray host access shows on CPU ranks.
std::unique_ptr<Device> make_deferred_device(std::uint64_t seed);

/// The device of a CUDA build: the local_rank-th of the visible GPUs; the only one where one is visible;
/// several ranks share them by turns where there are fewer. Throws Error that says what is missing where
/// there is none. Of other builds: make_host_device().
std::unique_ptr<Device> make_device(int local_rank);

/// Whether make_device gives a GPU.
bool built_for_gpus();

}  // namespace ztrain::runtime
