#pragma once
// The memory that a rank has in use over a step: from the lifetimes of its Program's tensors, at the times of
// the ops that begin and end them.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "program/ir/program.hpp"
#include "program/ir/step_times.hpp"

namespace ztrain::plan {

/// Bytes in use from a time on, by category.
struct MemoryPoint {
  double when = 0;
  std::array<std::int64_t, program::category_count> bytes{};
  std::int64_t total() const;
};

/// One tier of a step.
struct MemoryTrack {
  std::vector<MemoryPoint>
      points;            ///< in the order of time, the first at `begin`; none: the tier is not used
  std::size_t peak = 0;  ///< index of the first point with most bytes
  /// Tensors that are in use at the peak, the largest first, at most so many as `listed`: name, bytes.
  std::vector<std::pair<std::string, std::int64_t>> at_peak;
  static constexpr std::size_t listed = 12;
};

/// step: with a number for each issue (program::unrolled). A tensor is in use from the begin of the first op
/// that names it to the end of the last to end. What is kept between steps is in use all the time. begin:
/// seconds, not after any op.
MemoryTrack memory_track(const program::Program& step, const program::StepTimes& times, program::Tier tier,
                         double begin);

/// Makes it at most `most` points: of neighbours the one with most bytes stays.
void thin_out(MemoryTrack& track, std::size_t most);

}  // namespace ztrain::plan
