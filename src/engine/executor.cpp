#include "engine/executor.hpp"

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/shape.hpp"

namespace ztrain::engine {

using program::OpId;
using runtime::compute_queue;

void Executor::run() {
  if (options_.succession != nullptr) options_.succession->start(program_.name);
  collect_timings();
  forget();
  try {
    if (options_.graphs == Graphs::step && runs_ > 0)
      run_as_graph();
    else
      run_eagerly();
  } catch (const Error& e) {
    fail("{}, {}: {}", program_.name, describe_issue(program_, current()), e.what());
  }
  if (asynchronous_) {
    device_.record(end_, compute_queue);
    uncollected_ = true;
  }
  ++runs_;
  current_.store(-1, std::memory_order_relaxed);
}

std::string Executor::where() const {
  const OpId op = current();
  if (op >= 0) return describe_issue(program_, op);
  const std::string device = progress_.text(program_);
  return device.empty() ? "" : "the host waits for the device: " + device;
}

std::string Executor::position() const {
  const OpId at_host = current(), op = at_host >= 0 ? at_host : progress_.at();
  if (op < 0) return "";
  const OpId other = waits_for_.load(std::memory_order_relaxed);
  return fmt::format("op {} of {}, {}{}", op + 1, program_.issues(), place_of_issue(program_, op),
                     other < 0 ? "" : " waits for " + place_of_issue(program_, other));
}

Executor::~Executor() {
  for (const runtime::Graph graph : graphs_)
    if (graph >= 0) device_.destroy(graph);
}

/// The host comes to an op.
void Executor::begin(OpId id) {
  current_.store(id, std::memory_order_relaxed);
  begun_.begin(runs_ * program_.issues() + id);
}

void Executor::run_eagerly() {
  current_.store(0, std::memory_order_relaxed);
  recorder_.begin_run(issues_.size());
  if (asynchronous_) fork();
  for (std::size_t s = 0; s < segments_.size(); ++s) run_segment(s);
  finish_pending();
  if (asynchronous_) join();
}

void Executor::run_as_graph() {
  current_.store(0, std::memory_order_relaxed);
  if (graphs_[0] < 0) {
    require_capturable();
    device_.begin_capture(compute_queue);
    capturing_ = true;
    fork();
    issue_all(segments_[0]);
    join();
    capturing_ = false;
    graphs_[0] = device_.end_capture(compute_queue);
  } else {
    for (OpId id = 0; id < issues_.size(); ++id)
      if (const auto& collective = bound(id).collective) collective->replayed();
  }
  device_.launch(graphs_[0], compute_queue);
  timings_.by_kind = timings_.by_communication = false;
}

void Executor::run_segment(std::size_t s) {
  const Segment& segment = segments_[s];
  if (!segment.captured || runs_ == 0) return issue_all(segment);
  const OpId last = segment.end - 1;
  begin(segment.begin);
  settle(segment.begin);
  wait_for_queues(segment.begin);
  if (graphs_[s] < 0) {
    device_.begin_capture(compute_queue);
    for (OpId id = segment.begin; id < segment.end; ++id) enqueue(id);
    graphs_[s] = device_.end_capture(compute_queue);
  }
  device_.launch(graphs_[s], compute_queue);
  timings_.by_kind = false;
  if (order_.signals[at(last)]) device_.record(events_[at(last)], compute_queue);
  progress();
}

void Executor::issue_all(const Segment& segment) {
  for (OpId id = segment.begin; id < segment.end; ++id) {
    begin(id);
    settle(id);
    if (asynchronous_ && !host_driven_[at(id)]) wait_for_queues(id);
    if (observer_ != nullptr) observer_->look_before(id);
    issue(id);
    if (observer_ != nullptr) observer_->look_after(id);
    progress();
    if (options_.poison && (!asynchronous_ || host_driven_[at(id)])) poison_after(id);
  }
}

/// Communications that the host drives and that must be over first.
void Executor::settle(OpId id) {
  const program::Op& op = issues_.op(id);
  issues_.each_before(id, [&](OpId earlier) {
    if (in_flight_->contains(earlier)) finish_through(earlier);
  });
  for (int surplus = in_flight_->surplus(id, op.stream); surplus > 0; --surplus) finish_first(op.stream);
}

void Executor::wait_for_queues(OpId id) {
  if (order_.waits[at(id)].empty()) return;
  const runtime::Queue queue = queue_of(issues_.op(id).stream);
  const EventTimer::Stretch timed = clock(timed_waits_[at(id)]);
  timer_.begin(timed);
  for (const OpId earlier : order_.waits[at(id)]) device_.wait(queue, events_[at(earlier)]);
  timer_.end(timed);
}

void Executor::issue(OpId id) {
  const double start = now();
  if (host_driven_[at(id)]) {
    start_by_host(id);
  } else if (asynchronous_) {
    timer_.begin(clock(timed_begins_[at(id)]));
    enqueue(id);
    timer_.end(clock(timed_ends_[at(id)]));
    if (order_.signals[at(id)]) device_.record(events_[at(id)], queue_of(issues_.op(id).stream));
    return;
  } else {
    enqueue(id);
  }
  const double end = now();
  if (host_driven_[at(id)])
    recorder_.started(id, start, end);
  else
    recorder_.did(id, start, end);
  timings_.seconds[static_cast<std::size_t>(issues_.op(id).action.kind)] += end - start;
}

/// Hands the device all that an op is.
void Executor::enqueue(OpId id) {
  const Bound& bound = this->bound(id);
  const runtime::Queue queue = queue_of(issues_.op(id).stream);
  if (bound.launch) submit(queue, bound.on_host, bound.launch);
  if (bound.collective) bound.collective->start();
  if (asynchronous_ && options_.poison)
    for (const Fill& fill : poison_[at(id)]) submit(queue, fill.on_host, fill.work);
}

void Executor::submit(runtime::Queue queue, bool on_host, const std::function<void()>& work) {
  if (on_host)
    device_.run_on_host(queue, work);
  else
    device_.submit(queue, work);
}

void Executor::start_by_host(OpId id) {
  const program::Op& op = issues_.op(id);
  const Bound& bound = this->bound(id);
  if (asynchronous_) {
    device_.synchronize(fork_);
    for (const OpId earlier : order_.settles[at(id)]) device_.synchronize(events_[at(earlier)]);
  }
  if (bound.launch) {
    device_.submit(queue_of(op.stream), bound.launch);
    if (asynchronous_) {
      device_.record(events_[at(id)], queue_of(op.stream));
      device_.synchronize(events_[at(id)]);
    }
  }
  bound.collective->start();
  in_flight_->start(id, op.stream);
}

/// The other queues start after what compute was given before.
void Executor::fork() {
  device_.record(fork_, compute_queue);
  for (const runtime::Queue q : others_) device_.wait(q, fork_);
}

/// What compute is given next starts after all of this.
void Executor::join() {
  const EventTimer::Stretch timed = clock(timed_join_);
  timer_.begin(timed);
  for (std::size_t i = 0; i < others_.size(); ++i) {
    device_.record(joins_[i], others_[i]);
    device_.wait(compute_queue, joins_[i]);
  }
  timer_.end(timed);
}

void Executor::finish_first(program::Stream stream) {
  const OpId id = in_flight_->on(stream).front();
  const double start = now();
  waits_for_.store(id, std::memory_order_relaxed);
  bound(id).collective->wait();
  waits_for_.store(-1, std::memory_order_relaxed);
  const double end = now(), waited = end - start;
  recorder_.waited(id, current(), start, end);
  recorder_.ended(id, end);
  const program::Op& op = issues_.op(id);
  (op.communicates() ? timings_.exposed_communication : timings_.exposed_drives) += waited;
  if (op.comm.kind == program::CommKind::send || op.comm.kind == program::CommKind::recv)
    timings_.exposed_messages += waited;
  in_flight_->end_first(stream);
}

void Executor::finish_through(OpId id) {
  while (in_flight_->contains(id)) finish_first(issues_.op(id).stream);
}

void Executor::finish_pending() {
  for (int s = 0; s < program::stream_count; ++s)
    while (!in_flight_->on(static_cast<program::Stream>(s)).empty())
      finish_first(static_cast<program::Stream>(s));
}

/// Moves messages along between ops, since nothing else does where the host drives them.
void Executor::progress() {
  for (int s = 0; s < program::stream_count; ++s) {
    const auto stream = static_cast<program::Stream>(s);
    bool all_done = true;
    std::size_t done = 0;
    for (const OpId id : in_flight_->on(stream)) {
      const double start = now();
      all_done = bound(id).collective->test() && all_done;
      const double end = now();
      recorder_.moved(id, start, end);
      if (all_done) recorder_.ended(id, end);
      timings_.seconds[static_cast<std::size_t>(issues_.op(id).action.kind)] += end - start;
      done += all_done ? 1 : 0;
    }
    for (; done > 0; --done) in_flight_->end_first(stream);
  }
}

/// A communication issued earlier may still be sending from what this op was the last to be issued on. Others
/// are not waited for: their other side may not have come.
void Executor::poison_after(OpId id) {
  if (poison_[at(id)].empty()) return;
  for (const OpId access : poison_behind_[at(id)])
    if (in_flight_->contains(access)) finish_through(access);
  for (const Fill& fill : poison_[at(id)]) submit(queue_of(issues_.op(id).stream), fill.on_host, fill.work);
  device_.finish();
}

const Timings& Executor::timings() {
  collect_timings();
  return timings_;
}

void Executor::clear_timings() {
  timings_ = {};
  timer_.drop();
  uncollected_ = false;
}

void Executor::collect_timings() {
  if (!uncollected_) return;
  uncollected_ = false;
  if (device_.done(end_)) return timer_.collect(timings_);
  timer_.drop();
  timings_.by_kind = timings_.by_communication = false;
}

}  // namespace ztrain::engine
