#include "plan/other_sums.hpp"

#include <algorithm>

#include "config/validate/validate.hpp"
#include "plan/setup.hpp"

namespace ztrain::plan {
namespace {

std::vector<Change> ways(const config::Deck& deck) {
  std::vector<Change> changes;
  if (config::accumulation_steps(deck) > 1)
    changes.push_back({{"sharding.gradient_accumulation=no_sync"},
                       Effect::rounding,
                       "gradients are summed over ranks once a step, and are whole until then"});
  if (deck.precision.parameters == DType::bf16 && deck.precision.reduce == DType::f32)
    changes.push_back(
        {{"precision.reduce=bf16"}, Effect::numerics, "gradients travel in bf16, and are added in fp32"});
  return changes;
}

bool reduces(const Cost& cost) {
  return std::ranges::any_of(cost.traffic, [](const TrafficRow& row) {
    return row.bytes > 0 &&
           (row.kind == program::CommKind::reduce_scatter || row.kind == program::CommKind::all_reduce);
  });
}

}  // namespace

std::vector<OtherSums> with_other_sums(const Question& question, const Cost& own) {
  constexpr double worth_a_look = 0.05, worth_saying = 0.98;
  std::vector<OtherSums> found;
  if (own.step.exposed < worth_a_look * own.step.seconds || !reduces(own)) return found;
  if (!verdict_of(own).fits()) return found;  // what makes it fit comes first
  for (Change& change : ways(own.deck)) {
    Trial trial = try_fit(question, change.overrides, {.detail = Detail::step, .proven = false});
    if (trial.cost && trial.cost->step.seconds <= worth_saying * own.step.seconds)
      found.push_back({std::move(change), *std::move(trial.cost)});
  }
  std::ranges::sort(found, {}, [](const OtherSums& x) { return x.cost.step.seconds; });
  return found;
}

}  // namespace ztrain::plan
