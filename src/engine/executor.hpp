#pragma once
// Runs a Program: issues its ops in order from one host thread, each to the queue of its stream, and orders
// the queues by events. A communication that the host drives is started when its inputs are ready, and
// moved along between ops; the host waits for it before it issues what depends on it. Several of one stream
// are under way at once where they have nothing to do with each other (in_flight.hpp).
//
// On CPU ranks work runs when it is issued. On other devices run() returns while work is under way: the next
// work of the compute queue comes after all of it.

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/action_ring.hpp"
#include "engine/device_progress.hpp"
#include "engine/in_flight.hpp"
#include "engine/kernel_table.hpp"
#include "engine/op_observer.hpp"
#include "engine/op_order.hpp"
#include "engine/queues.hpp"
#include "engine/segments.hpp"
#include "engine/timings.hpp"
#include "kernels/elementwise/copies.hpp"
#include "program/jobs/program_set.hpp"
#include "program/loops/repeat.hpp"

namespace ztrain::engine {

struct ExecutorOptions {
  bool poison = false;  ///< fill transient tensors with NaN once their life is over, workspaces in part
  bool timed = false;   ///< a clock for every op, where work runs later than it is issued: else for
                        ///< ops that follow each other in one queue, of one kind of action, together
  Graphs graphs = Graphs::none;  ///< where the device captures work
  /// Told of each run of a job's Program, which it refuses where it may not come; null: any may.
  program::Succession* succession = nullptr;
  std::function<Bound(const Binding&)> bind = engine::bind;  ///< how ops find their kernels
  /// Writes that NaN: a kernel. Devices of tests may have memory that kernels do not reach.
  std::function<void(kernels::Exec&, void* to, std::int64_t bytes, std::int64_t every)> fill =
      kernels::fill_poison;
};

/// Equal for Programs with the same ops, of the same layers, in the same order: ranks that have them count
/// alike. Whom a message is for is left out.
std::uint64_t fingerprint_of(const program::Program& program);

class Executor {
 public:
  /// Binds every op, and what is issued many times (Program::repeat) once, but for ops that then read or
  /// write elsewhere. program, memory, mesh and queues must outlive the executor. Collective over the mesh:
  /// communicators are made in program order.
  Executor(const program::Program& program, const JobMemory& memory, runtime::Mesh& mesh, Queues& queues,
           ExecutorOptions options = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Throws Error where Graphs::step is asked for and the host drives a communication.
  void require_capturable() const;

  /// One pass over the program; every communication that the host drives is complete on return. Allocates
  /// nothing once it is warm: graphs are captured by the second pass. Throws Error naming the op when one
  /// fails while it is issued.
  void run();

  const program::Program& program() const { return program_; }
  /// Those of all ops, each once, in the order of the ops.
  const std::vector<Note>& notes() const { return notes_; }
  /// Complete once the device is through with the last run.
  const Timings& timings();
  void clear_timings();
  /// The next runs are looked at, or (null) no more; it must outlive them. Only where work is done as it is
  /// issued.
  void look_with(OpObserver* observer) { observer_ = observer; }
  /// Records the next runs, where work is done as it is issued: on CPU ranks.
  StepRecorder& recorder() { return recorder_; }
  /// The op in progress, counted as it is issued, for a watchdog on another thread; -1 when idle.
  program::OpId current() const { return current_.load(std::memory_order_relaxed); }
  /// For where the host waits for the device: asks it how far it is with the last run. Never waits.
  void observe() { progress_.observe(timer_); }
  /// The device is through: nothing is left to tell of it.
  void forget() { progress_.clear(); }
  /// For a watchdog on another thread: the op that the host is at, else what was last observed of the device;
  /// "" where neither is known.
  std::string where() const;
  /// Any thread: for a watchdog that compares this rank with others.
  Standing standing() const;
  /// For the same, in brief: "op 37 of 146, forward model.layers.2 micro 0"; behind it, where the host waits
  /// for other ranks, "waits for gather model.layers.2".
  std::string position() const;

 private:
  /// Of what has ended, for debug.poison.
  struct Fill {
    bool on_host;
    std::function<void()> work;
  };

  void begin(program::OpId id);
  void bind_ops(runtime::Mesh& mesh);
  int bind_op(program::OpId issue, runtime::Mesh& mesh);
  const Bound& bound(program::OpId issue) const {
    return bound_[static_cast<std::size_t>(bound_of_[static_cast<std::size_t>(issue)])];
  }
  void make_in_flight();
  void make_events();
  void make_segments();
  bool waits(program::OpId id) const;
  void make_stretches();
  void find_ends();
  Fill fill_of(const program::Tensor& tensor, std::byte* to, runtime::Queue queue);

  void run_eagerly();
  void run_as_graph();
  void run_segment(std::size_t s);
  void issue_all(const Segment& segment);
  void settle(program::OpId id);
  void wait_for_queues(program::OpId id);
  void issue(program::OpId id);
  void enqueue(program::OpId id);
  void start_by_host(program::OpId id);
  void fork();
  void join();
  void finish_first(program::Stream stream);
  void finish_through(program::OpId id);
  void finish_pending();
  void progress();
  void poison_after(program::OpId id);
  void submit(runtime::Queue queue, bool on_host, const std::function<void()>& work);
  void collect_timings();
  EventTimer::Stretch clock(EventTimer::Stretch stretch) const {
    return capturing_ ? EventTimer::none : stretch;
  }

  const program::Program& program_;
  const JobMemory& memory_;
  Queues& queues_;
  runtime::Device& device_;
  ExecutorOptions options_;
  bool asynchronous_;
  std::uint64_t fingerprint_;
  program::Issues issues_;  ///< in what follows an OpId is a place among them, and "by op" is by issue
  std::vector<Bound> bound_;
  std::vector<int> bound_of_;      ///< by op: index into bound_
  std::deque<program::Op> moved_;  ///< ops as they are at later times, where attributes move on
  std::vector<Note> notes_;

  // By issue: whether the host drives the communication, and not the device.
  std::vector<bool> host_driven_;
  std::optional<InFlight> in_flight_;

  // Devices that run work later.
  OpOrder order_;
  std::vector<runtime::Event> events_;  ///< by op that signals
  std::vector<runtime::Queue> others_;  ///< queues in use beside compute
  std::vector<runtime::Event> joins_;   ///< of those
  runtime::Event fork_ = 0, end_ = 0;
  std::vector<Segment> segments_;
  std::vector<runtime::Graph> graphs_;  ///< by segment; -1: not captured yet, or never
  bool capturing_ = false;
  std::int64_t runs_ = 0;

  EventTimer timer_;
  DeviceProgress progress_;
  bool uncollected_ = false;                      ///< the last run's times
  std::vector<EventTimer::Stretch> timed_waits_;  ///< by op
  std::vector<EventTimer::Stretch> timed_begins_,
      timed_ends_;  ///< by op: of stretches that begin or end there
  EventTimer::Stretch timed_join_ = EventTimer::none;

  OpObserver* observer_ = nullptr;
  StepRecorder recorder_;

  std::vector<std::vector<Fill>> poison_;                  ///< by op: of what ends there
  std::vector<std::vector<program::OpId>> poison_behind_;  ///< by op: messages that these fills wait for
  Timings timings_;
  std::atomic<program::OpId> current_{-1};
  ActionRing begun_;
  std::atomic<program::OpId> waits_for_{-1};  ///< the communication whose end the host waits for
};

}  // namespace ztrain::engine
