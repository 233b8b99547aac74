#pragma once
// What a rank computes and when, as it is planned (plan/step_time.hpp) and as it was done
// (engine/executor.hpp): for drawings of pipelines.

#include <vector>

#include "program/ir/program.hpp"

namespace ztrain::program {

/// Forwards, backwards or recomputations of a micro-batch, one behind the other. Seconds.
struct Work {
  Action action;  ///< of the first of them
  double begin = 0, end = 0;
};

class WorkList {
 public:
  /// Ops of kinds that do not compute are left out. What has waited for longer than it had worked is drawn
  /// apart.
  void add(const Action& action, double begin, double end) {
    if (!is_compute(action.kind)) return;
    if (!work_.empty() && goes_on(work_.back(), action, begin))
      work_.back().end = end;
    else
      work_.push_back({action, begin, end});
  }
  void clear() { work_.clear(); }
  const std::vector<Work>& all() const { return work_; }

 private:
  static bool goes_on(const Work& w, const Action& action, double begin) {
    return w.action.kind == action.kind && w.action.micro == action.micro && w.action.half == action.half &&
           begin - w.end <= w.end - w.begin;
  }

  std::vector<Work> work_;
};

}  // namespace ztrain::program
