#pragma once
// Names ranks, with their nodes, that take longer than others for the same work, so that all wait for them.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "engine/timings.hpp"
#include "layout/mesh.hpp"
#include "runtime/session/session.hpp"
#include "train/report.hpp"

namespace ztrain::train {

/// Phases of a step in which a rank works by itself. Waiting for others is not part of them.
constexpr std::array<const char*, 4> busy_phases{"reading data", "forward", "backward", "optimizer"};
using Busy = std::array<double, busy_phases.size()>;

struct RankBusy {
  std::string host;
  int stage = 0;  ///< pipeline stage; ranks of one stage have the same work
  Busy seconds{};
};

/// Describes for each phase the slowest ranks, at most three, that exceed their stage's median by a factor of
/// 1.3 and by 2% of a step. Returns "" if there are none. `by_rank` has the seconds of `steps` steps, which
/// took `total`.
std::string describe_stragglers(const std::vector<RankBusy>& by_rank, std::int64_t steps, double total);

class Stragglers {
 public:
  /// The session outlives it.
  Stragglers(const config::Deck& deck, const runtime::Session& session, const MeshShape& mesh);

  /// Adds a step. In every watchdog.stragglers-th step it is collective and returns at rank 0 the text to
  /// print; otherwise returns "". Work that CUDA graphs replay is not timed: with them only reading data is
  /// compared, and the text says so once.
  std::string after_step(std::int64_t step, const engine::Timings& timings, const StepClock& clock);

  /// Collective. Returns at rank 0 the text to print at the end of a run, on all steps that were added but
  /// the first one, which warms up. Returns "" if no rank was slow, or if watchdog.stragglers = 0.
  std::string over_the_run() const;

 private:
  /// Seconds of one rank over several steps.
  struct Sum {
    std::int64_t steps = 0;
    Busy seconds{};
    double total = 0;

    void add(const Busy& step, double step_total);
  };

  std::vector<RankBusy> gather(const Busy& seconds) const;

  const runtime::Session& session_;
  MeshShape mesh_;
  std::int64_t interval_;
  Sum since_report_, run_;
  bool warm_ = false;  ///< whether a step was added
  bool told_of_graphs_ = false;
};

}  // namespace ztrain::train
