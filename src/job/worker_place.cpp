// Says which op a rank is at, for the watchdog and for people who watch a run.

#include "job/worker.hpp"

namespace ztrain::job {

std::vector<const engine::Executor*> Worker::executors() const {
  std::vector<const engine::Executor*> all{&load_, &evaluate_};
  if (all_rows_) all.push_back(all_rows_.get());
  if (train_) all.push_back(train_.get());
  return all;
}

std::string Worker::where() const {
  for (const engine::Executor* executor : executors())
    if (std::string at = executor->where(); !at.empty()) return at;
  return "";
}

telemetry::Place Worker::place() const {
  telemetry::Place place;
  place.rank = mesh_.coordinate().rank();
  const std::vector<const engine::Executor*> all = executors();
  for (const engine::Executor* executor : all) {
    engine::Standing at = executor->standing();
    // If no Program is under way, the last executor says how far this rank has come.
    if (at.program.empty() || (!at.under_way && executor != all.back())) continue;
    place.program = std::move(at.program);
    place.fingerprint = at.fingerprint;
    place.sequence = at.sequence;
    place.at = std::move(at.at);
    place.last = std::move(at.last);
    if (at.waits_for < 0) return place;
    std::vector<int> members = mesh_.coordinate().group(at.axes);
    if (at.peer >= 0) members = {place.rank, members[static_cast<std::size_t>(at.peer)]};
    place.waits_for = {at.waits_for, std::move(at.waits_for_what), std::move(members)};
    return place;
  }
  return place;
}

std::string Worker::position() const {
  for (const engine::Executor* executor : executors())
    if (std::string at = executor->position(); !at.empty()) return at;
  return "";
}

}  // namespace ztrain::job
