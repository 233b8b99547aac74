#pragma once
// What a rank keeps between steps, as hashes of pieces with names: ranks that have pieces of one name hold
// copies.

#include <cstdint>
#include <string>
#include <vector>

#include "job/worker.hpp"
#include "layout/mesh.hpp"

namespace ztrain::job {

struct HeldPiece {
  std::string name;  ///< "weights of model.norm.weight, elements 0 to 63"
  AxisSet copied;    ///< ranks that differ in these axes alone may have it as well
  std::uint64_t hash = 0;
};

/// Of all states of all units: weights, in each form that is kept, and the optimizer's. Those of one `copied`
/// stand in the order of their units. Scales of 8-bit weights, which follow from these in each step, are not
/// looked at. No work is under way.
std::vector<HeldPiece> held_pieces(const Worker& worker);

/// Of the copy of the state that Worker::copied_state() makes.
std::uint64_t hash_of_copy(const Worker& worker);

}  // namespace ztrain::job
