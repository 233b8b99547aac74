#pragma once
// What the ranks of a pipeline have in common: the turns of all of them, their messages, and what repeats. A
// plan compiles many ranks of one pipeline, so each of these is found once for all.

#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "program/schedules/messages.hpp"
#include "program/schedules/middle.hpp"

namespace ztrain::program {

/// Returns the turns of one rank. Asserts that they are a step.
std::vector<Turn> turns_of(const Schedule& schedule, const ScheduleInput& input);

/// Several threads may ask at once.
class PipelineSteps {
 public:
  /// ahead: turns by which receives are begun early.
  PipelineSteps(Schedule schedule, int ranks, int ahead)
      : schedule_(std::move(schedule)), ranks_(ranks), ahead_(ahead) {}

  /// Returns the messages of a step of so many micro-batches.
  const MessagePlanner& messages(int micro_batches);
  /// Returns what middle_of finds in a step of so many micro-batches.
  const std::optional<Middle>& middle(int micro_batches);

 private:
  Schedule schedule_;
  int ranks_, ahead_;
  std::mutex mutex_;
  std::map<int, MessagePlanner> messages_;        ///< by number of micro-batches
  std::map<int, std::optional<Middle>> middles_;  ///< by number of micro-batches
};

}  // namespace ztrain::program
