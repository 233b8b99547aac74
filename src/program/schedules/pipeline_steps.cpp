#include "program/schedules/pipeline_steps.hpp"

#include <string>
#include <utility>

#include "base/error.hpp"

namespace ztrain::program {

std::vector<Turn> turns_of(const Schedule& schedule, const ScheduleInput& input) {
  std::vector<Turn> turns = schedule.turns(input);
  const std::string fault = fault_of(turns, schedule.chunks, input.micro_batches);
  ASSERT(fault.empty(), "schedule '{}': {}", schedule.name, fault);
  return turns;
}

const MessagePlanner& PipelineSteps::messages(int micro_batches) {
  const std::scoped_lock lock(mutex_);
  if (const auto it = messages_.find(micro_batches); it != messages_.end()) return it->second;
  PipelineOrder order{stage_map(schedule_, ranks_), {}, ahead_};
  for (int rank = 0; rank < ranks_; ++rank)
    order.turns.push_back(turns_of(schedule_, {micro_batches, ranks_, rank, schedule_.chunks}));
  return messages_.try_emplace(micro_batches, std::move(order)).first->second;
}

const std::optional<Middle>& PipelineSteps::middle(int micro_batches) {
  const std::scoped_lock lock(mutex_);
  const auto it = middles_.find(micro_batches);
  if (it != middles_.end()) return it->second;
  return middles_[micro_batches] = middle_of(schedule_, ranks_, micro_batches, ahead_);
}

}  // namespace ztrain::program
