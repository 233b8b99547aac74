#pragma once
// Times the ops of steps on CPU ranks, where work is done as it is issued.

#include <vector>

#include "engine/op_observer.hpp"
#include "program/loops/repeat.hpp"

namespace ztrain::bench {

/// Returns the threads that a rank computes with: OMP_NUM_THREADS, which a session sets.
int threads_of_rank();

/// CPU seconds of this process, and of all processes of the machine; 0 if /proc does not tell.
struct UsedSeconds {
  double own = 0, all = 0;
};
UsedSeconds used_seconds();

/// Takes CPU seconds of the rank's thread, so that ranks that take turns on a core do not count for each
/// other. Ranks of several threads are timed by the wall clock. Of what the host computes on threads of its
/// own, this one has as large a part as each other.
class OpClock final : public engine::OpObserver {
 public:
  explicit OpClock(const program::Program& program);

  void look_before(program::OpId issue) override;
  void look_after(program::OpId issue) override;

  /// Returns the median seconds of each issue over the steps so far.
  std::vector<double> medians();

 private:
  double time() const;

  program::Issues issues_;
  bool one_thread_ = threads_of_rank() == 1;
  double overhead_;  ///< seconds between two readings of the clock
  double start_ = 0;
  std::vector<std::vector<double>> seconds_;  ///< by issue
};

}  // namespace ztrain::bench
