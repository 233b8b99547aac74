#include "train/stragglers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "checkpoint/rank_group.hpp"

namespace ztrain::train {
namespace {

constexpr double much_longer = 1.3, share_of_step = 0.02;
constexpr std::size_t most_named = 3;

/// Returns the median over each stage's ranks; for an even number of ranks, the lower of the two in the
/// middle.
std::map<int, double> usual_seconds(const std::vector<RankBusy>& by_rank, std::size_t phase) {
  std::map<int, std::vector<double>> all;
  for (const RankBusy& rank : by_rank) all[rank.stage].push_back(rank.seconds[phase]);
  std::map<int, double> medians;
  for (auto& [stage, seconds] : all) {
    const auto middle = seconds.begin() + (std::ssize(seconds) - 1) / 2;
    std::nth_element(seconds.begin(), middle, seconds.end());
    medians[stage] = *middle;
  }
  return medians;
}

std::string describe_phase(const std::vector<RankBusy>& by_rank, std::size_t phase, std::int64_t steps,
                           double total) {
  const std::map<int, double> usual = usual_seconds(by_rank, phase);
  std::vector<std::pair<double, std::size_t>> slow;
  for (std::size_t r = 0; r < by_rank.size(); ++r) {
    const double own = by_rank[r].seconds[phase], others = usual.at(by_rank[r].stage);
    if (own >= much_longer * others && own - others >= share_of_step * total) slow.emplace_back(own, r);
  }
  std::sort(slow.rbegin(), slow.rend());
  std::string text;
  for (std::size_t i = 0; i < std::min(most_named, slow.size()); ++i) {
    const auto& [own, r] = slow[i];
    const auto n = static_cast<double>(steps);
    text += fmt::format("{}rank {} ({}) {:.3g} s a step, where {:.3g} s is usual", text.empty() ? "" : ", ",
                        r, by_rank[r].host, own / n, usual.at(by_rank[r].stage) / n);
  }
  if (slow.size() > most_named) text += fmt::format(", and {} more", slow.size() - most_named);
  return text.empty() ? "" : fmt::format("{}: {}", busy_phases[phase], text);
}

}  // namespace

std::string describe_stragglers(const std::vector<RankBusy>& by_rank, std::int64_t steps, double total) {
  std::string text;
  for (std::size_t phase = 0; phase < busy_phases.size(); ++phase)
    if (const std::string slow = describe_phase(by_rank, phase, steps, total); !slow.empty())
      text += (text.empty() ? "" : "; ") + slow;
  return text;
}

Stragglers::Stragglers(const config::Deck& deck, const runtime::Session& session, const MeshShape& mesh)
    : session_(session), mesh_(mesh), interval_(session.size() > 1 ? deck.watchdog.stragglers : 0) {}

void Stragglers::Sum::add(const Busy& step, double step_total) {
  for (std::size_t phase = 0; phase < step.size(); ++phase) seconds[phase] += step[phase];
  total += step_total;
  ++steps;
}

std::string Stragglers::after_step(std::int64_t step, const engine::Timings& timings,
                                   const StepClock& clock) {
  using program::ActionKind;
  if (interval_ == 0) return "";
  Busy now{clock.data};
  if (timings.by_kind)
    now = {clock.data, timings.of(ActionKind::forward),
           timings.of(ActionKind::backward) + timings.of(ActionKind::recompute),
           timings.of(ActionKind::optimize) + timings.of(ActionKind::norm)};
  since_report_.add(now, clock.total);
  if (std::exchange(warm_, true)) run_.add(now, clock.total);
  if (step % interval_ != 0) return "";
  const Sum sum = std::exchange(since_report_, {});
  const std::string slow = describe_stragglers(gather(sum.seconds), sum.steps, sum.total);
  std::string text;
  if (!timings.by_kind && !std::exchange(told_of_graphs_, true))
    text =
        "watchdog.stragglers: what CUDA graphs replay is not timed (device.cuda_graphs), so that ranks are "
        "compared by reading data alone\n";
  if (!slow.empty())
    text += fmt::format("steps {} to {}: slow ranks: {}\n", step - sum.steps + 1, step, slow);
  return text;
}

std::string Stragglers::over_the_run() const {
  if (interval_ == 0 || run_.steps == 0) return "";
  const std::string slow = describe_stragglers(gather(run_.seconds), run_.steps, run_.total);
  return slow.empty() ? "" : fmt::format("all wait for slow ranks: {}\n", slow);
}

/// Seconds are exchanged as whole nanoseconds.
std::vector<RankBusy> Stragglers::gather(const Busy& seconds) const {
  const auto world = checkpoint::Group::world();
  std::vector<RankBusy> by_rank(static_cast<std::size_t>(session_.size()));
  for (std::size_t phase = 0; phase < seconds.size(); ++phase) {
    const auto all = world.all_gather(static_cast<std::int64_t>(std::llround(1e9 * seconds[phase])));
    for (std::size_t r = 0; r < by_rank.size(); ++r)
      by_rank[r].seconds[phase] = 1e-9 * static_cast<double>(all[r]);
  }
  const auto hosts = world.gather_text(session_.host());
  for (std::size_t r = 0; r < by_rank.size(); ++r) {
    by_rank[r].stage = Coordinate(mesh_, static_cast<int>(r))[Axis::pipeline];
    if (r < hosts.size()) by_rank[r].host = hosts[r];
  }
  return by_rank;
}

}  // namespace ztrain::train
