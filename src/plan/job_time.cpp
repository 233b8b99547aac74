#include "plan/job_time.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/shape.hpp"
#include "config/validate/validate.hpp"
#include "plan/save_interval.hpp"

namespace ztrain::plan {
namespace {

/// Returns the seconds of a micro-batch's forward, with its share of the step's waiting.
double forward_seconds(const Cost& c) {
  const ByAction& computing = c.step.busy[at(program::Stream::compute)];
  const double all = std::accumulate(computing.begin(), computing.end(), 0.0);
  const double share = all > 0 ? computing[at(program::ActionKind::forward)] / all : 0;
  return share * c.step.seconds / static_cast<double>(config::accumulation_steps(c.deck));
}

/// Returns how often an event of every `interval` steps happens in so many steps. An interval of 0 is never.
double occasions(double steps, std::int64_t interval) {
  return interval > 0 ? std::floor(steps / static_cast<double>(interval)) : 0;
}

}  // namespace

JobTime job_time(const Cost& c) {
  const auto steps = static_cast<double>(config::total_steps(c.deck, 0));
  const config::Checkpoint& saving = c.deck.checkpoint;
  JobTime t;
  t.steps = steps * c.step.seconds;

  double evaluations = occasions(steps, c.deck.evaluation.interval);
  if (saving.keep_best > 0) evaluations = std::max(evaluations, occasions(steps, saving.interval));
  t.evaluations = evaluations * static_cast<double>(c.deck.evaluation.batches) * forward_seconds(c);

  const double save = save_interval(c).save;
  const double before_end =
      saving.interval > 0 ? std::max(0.0, std::ceil(steps / static_cast<double>(saving.interval)) - 1) : 0;
  const double between = static_cast<double>(saving.interval) * c.step.seconds;
  t.saves =
      before_end * (saving.async ? std::max(0.0, save - between) : save) + (saving.interval >= 0 ? save : 0);

  const double nodes = static_cast<double>(ceil_div(c.ranks, c.machine.ranks_per_node));
  t.energy = nodes * c.machine.rates.nodes.watts * t.seconds();
  return t;
}

}  // namespace ztrain::plan
