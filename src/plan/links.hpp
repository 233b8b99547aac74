#pragma once
// Over which links what is sent goes: within a node, or out of it.

#include "program/ir/program.hpp"

namespace ztrain::plan {

/// Whether an op sends to one rank, or receives from one.
bool is_message(const program::Op& op);
/// Whether a message goes to, or comes from, a rank of this rank's node.
bool stays_on_node(const program::Program& program, const program::Op& op, int ranks_per_node);

/// Members of the group of `rank` over axes that are on its node, and all of them.
struct GroupPlace {
  int on_node = 1, members = 1;
};
GroupPlace place_of(const Coordinate& at, AxisSet axes, int ranks_per_node);

/// Returns the bytes that this rank sends out of its node in one collective or message. In a ring, the
/// members on a node share the bytes that leave it. All-to-all sends one part to each rank elsewhere. Sums of
/// 16-bit elements follow layout/sum_group.hpp. `place` is the place of the op's group.
double bytes_out_of_node(const program::Program& program, const program::Op& op, const GroupPlace& place,
                         int ranks_per_node);

}  // namespace ztrain::plan
