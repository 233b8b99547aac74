#include "engine/timings.hpp"

namespace ztrain::engine {

EventTimer::Stretch EventTimer::add(runtime::Queue queue, std::optional<program::ActionKind> kind) {
  stretches_.push_back({queue, kind, device_.make_event(true), device_.make_event(true)});
  return static_cast<Stretch>(stretches_.size() - 1);
}

void EventTimer::begin(Stretch stretch) {
  if (stretch == none) return;
  const Timed& timed = stretches_[static_cast<std::size_t>(stretch)];
  device_.record(timed.from, timed.queue);
}

void EventTimer::end(Stretch stretch) {
  if (stretch == none) return;
  Timed& timed = stretches_[static_cast<std::size_t>(stretch)];
  device_.record(timed.to, timed.queue);
  timed.recorded = true;
}

EventTimer::Progress EventTimer::progress(Stretch stretch) const {
  const Timed& timed = stretches_[static_cast<std::size_t>(stretch)];
  if (!timed.recorded) return Progress::unknown;
  if (device_.done(timed.to)) return Progress::done;
  return device_.done(timed.from) ? Progress::begun : Progress::to_begin;
}

void EventTimer::collect(Timings& timings) {
  for (Timed& timed : stretches_) {
    if (!timed.recorded) continue;
    timed.recorded = false;
    const double seconds = device_.seconds(timed.from, timed.to).value_or(0);
    if (timed.kind)
      timings.seconds[static_cast<std::size_t>(*timed.kind)] += seconds;
    else
      timings.exposed_communication += seconds;
  }
}

void EventTimer::drop() {
  for (Timed& timed : stretches_) timed.recorded = false;
}

}  // namespace ztrain::engine
