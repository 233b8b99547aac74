#include "engine/device_progress.hpp"

#include <fmt/format.h>

#include "program/loops/repeat.hpp"

namespace ztrain::engine {

void DeviceProgress::begin(EventTimer::Stretch stretch, runtime::Queue queue, program::OpId op) {
  queues_[static_cast<std::size_t>(queue)].stretches.push_back({stretch, op, op});
}

void DeviceProgress::extend(runtime::Queue queue, program::OpId op) {
  queues_[static_cast<std::size_t>(queue)].stretches.back().last = op;
}

void DeviceProgress::clear() {
  for (Queue& queue : queues_) {
    queue.state.store(State::unknown, std::memory_order_relaxed);
    queue.at.store(0, std::memory_order_relaxed);
  }
}

void DeviceProgress::observe(EventTimer& timer) {
  for (Queue& queue : queues_) observe(timer, queue);
}

/// Stretches without a clock in this run, which a graph replays, are passed over.
void DeviceProgress::observe(EventTimer& timer, Queue& queue) {
  std::size_t at = queue.at.load(std::memory_order_relaxed);
  State state = State::all_done;
  for (; at < queue.stretches.size() && state == State::all_done; ++at) {
    const EventTimer::Progress progress = timer.progress(queue.stretches[at].clock);
    if (progress == EventTimer::Progress::to_begin) state = State::to_begin;
    if (progress == EventTimer::Progress::begun) state = State::begun;
    if (state != State::all_done) break;
  }
  queue.at.store(at, std::memory_order_relaxed);
  queue.state.store(state, std::memory_order_release);
}

program::OpId DeviceProgress::at() const {
  for (const Queue& queue : queues_) {
    const State state = queue.state.load(std::memory_order_acquire);
    const std::size_t at = queue.at.load(std::memory_order_relaxed);
    if ((state == State::to_begin || state == State::begun) && at < queue.stretches.size())
      return queue.stretches[at].first;
  }
  return -1;
}

std::string DeviceProgress::text(const program::Program& program) const {
  std::string text;
  bool observed = false;
  for (std::size_t q = 0; q < queues_.size(); ++q) {
    const State state = queues_[q].state.load(std::memory_order_acquire);
    observed |= state != State::unknown;
    const std::size_t at = queues_[q].at.load(std::memory_order_relaxed);
    if ((state != State::to_begin && state != State::begun) || at >= queues_[q].stretches.size()) continue;
    const Stretch& stretch = queues_[q].stretches[at];
    text +=
        fmt::format("{}{} {} {}", text.empty() ? "" : "; ", name_of(static_cast<program::Stream>(q)),
                    state == State::begun ? "is at" : "is to begin", describe_issue(program, stretch.first));
    if (stretch.last != stretch.first) text += fmt::format(" to {}", describe_issue(program, stretch.last));
  }
  return !observed || !text.empty() ? text
                                    : "all that has clocks is done: what is left is in graphs, or copies";
}

}  // namespace ztrain::engine
