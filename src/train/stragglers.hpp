#pragma once
// Ranks that take longer than the others for the same work, so that all wait for them: named with their node,
// every so many steps.

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

/// Seconds of a rank in what it does by itself: waiting for others is no part of them.
constexpr std::array<const char*, 4> busy_phases{"reading data", "forward", "backward", "optimizer"};
using Busy = std::array<double, busy_phases.size()>;

struct RankBusy {
  std::string host;
  int stage = 0;  ///< of a pipeline: the others of a stage have the same work
  Busy seconds{};
};

/// For each phase the slowest ranks, three at most, that take 1.3 times what is usual in their stage or more,
/// and 2% of a step more; "" where there are none. `by_rank` has the seconds of `steps` steps, which took
/// `total`.
std::string describe_stragglers(const std::vector<RankBusy>& by_rank, std::int64_t steps, double total);

class Stragglers {
 public:
  /// The session outlives it.
  Stragglers(const config::Deck& deck, const runtime::Session& session, const MeshShape& mesh);

  /// Behind each step. Collective in every watchdog.stragglers-th, where it gives rank 0 what to tell; else
  /// "". What CUDA graphs replay is not timed: of a run with them only reading data is compared, which it
  /// says once.
  std::string after_step(std::int64_t step, const engine::Timings& timings, const StepClock& clock);

 private:
  std::vector<RankBusy> gather() const;

  const runtime::Session& session_;
  MeshShape mesh_;
  std::int64_t interval_;
  std::int64_t steps_ = 0;  ///< since the last time
  Busy seconds_{};
  double total_ = 0;
  bool told_of_graphs_ = false;
};

}  // namespace ztrain::train
