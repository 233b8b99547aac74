#pragma once
// The copies of offload: for each tensor that ops use in another tier than that of its home, stays in theirs.

#include "program/ir/program.hpp"

namespace ztrain::program {

/// Whether bytes go from one tier to the other at once: NVMe is reached from the host alone.
bool are_neighbours(Tier a, Tier b);

/// Makes a stay for each run of ops that use a tensor in a tier that is not its home, with a fetch before it,
/// of what it reads, and an eviction behind it, of what it changes. A transient tensor that never leaves such
/// a run is at home there instead. A fetch is issued while the block, or the step of the unit, before its
/// first use still computes. For Programs whose dependencies are not linked yet.
void insert_copies(Program& program);

}  // namespace ztrain::program
