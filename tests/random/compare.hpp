#pragma once
// Whether two runs of the same numerics did the same, within what their precision allows.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/random/draw.hpp"

namespace ztrain::random_decks {

/// Largest relative differences of two runs.
struct Apart {
  double loss = 0, norm = 0, validation = 0;
  double weights = 0;  ///< largest mean absolute difference of a tensor of weights
};

struct Bound {
  std::string name;  ///< what decides it, such as "fp32 smooth"
  Apart apart;
  /// Weights of a tensor that may differ by more: what is rounded by chance may fall to the other neighbour.
  std::int64_t strays = 0;
  bool narrow = false;  ///< computed in 16 or 8 bits
};

/// What the precision and the optimizer of these numerics allow.
Bound bound_of(const Words& numerics);

/// What differs by more than the bound behind step `from`, a line each; none: the runs did the same. Folders
/// are run.output.
std::vector<std::string> differences(const std::string& run, const std::string& one_rank, std::int64_t from,
                                     const Bound& bound, Apart& apart);

/// What two runs that went on from the same checkpoint with different learning rates do not have in common
/// though one step does not change it: loss, norm and the optimizer's states, bit for bit.
std::vector<std::string> differences_before_update(const std::string& run, const std::string& other,
                                                   std::int64_t from);

}  // namespace ztrain::random_decks
