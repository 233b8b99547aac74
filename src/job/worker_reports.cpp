// What a worker tells others: which op a rank is at, for the watchdog and for people who watch a run, and
// what steps and evaluations report beside the step's numbers.

#include <algorithm>

#include "base/shape.hpp"
#include "job/worker.hpp"

namespace ztrain::job {

std::vector<const engine::Executor*> Worker::executors() const {
  std::vector<const engine::Executor*> all{&load_, &evaluate_};
  if (all_rows_) all.push_back(all_rows_.get());
  if (warm_up_) all.push_back(warm_up_.get());
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

std::optional<ExpertsPartial> Worker::experts() const {
  if (job_.tensors.experts == program::no_tensor) return std::nullopt;
  const auto* const of_ranks = report<ExpertsPartial>(job_.tensors.experts);
  ExpertsPartial all;
  for (int rank = 0; rank < mesh_.shape().ranks(); ++rank) {
    const ExpertsPartial& own = of_ranks[rank];
    all.balance_sum += own.balance_sum;
    all.z_sum += own.z_sum;
    all.load_max = std::max(all.load_max, own.load_max);
    all.idle += own.idle;
  }
  return all;
}

std::optional<PreferenceSums> Worker::preference() const {
  if (!of_pairs()) return std::nullopt;
  return *report<PreferenceSums>(job_.tensors.preference.report);
}

std::span<const double> Worker::logps() const {
  const Coordinate& at = mesh_.coordinate();
  const bool first = at[Axis::tensor] == 0 && at.index_in(context_axes) == 0;
  if (!of_pairs() || job_.graph.pairs.logps < 0 || !first) return {};
  const auto count = job_.train().tensor(job_.tensors.preference.logps).shape[0];
  return {report<double>(job_.tensors.preference.logps), static_cast<std::size_t>(count)};
}

std::optional<DistillationSums> Worker::distillation() const {
  if (!distils()) return std::nullopt;
  return *report<DistillationSums>(job_.tensors.teacher.report);
}

LikeliestWords Worker::likeliest() const {
  const program::TeacherTensors& told = job_.tensors.teacher;
  if (told.words == program::no_tensor || mesh_.coordinate()[Axis::tensor] > 0) return {};
  const auto count = static_cast<std::size_t>(elements(job_.load().tensor(told.words).shape));
  return {{report<std::int32_t>(told.words), count}, {report<float>(told.log_likelihoods), count}};
}

}  // namespace ztrain::job
