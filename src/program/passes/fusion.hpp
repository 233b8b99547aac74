#pragma once
// Ops that are read and written together become one.

#include "program/ir/program.hpp"

namespace ztrain::program {

/// An add (a residual's) whose sum is first read by the rmsnorm of whole rows right after it becomes, with
/// it, an add_rmsnorm: the sum is not read again. On the expanded Program, of forward and of what is
/// recomputed; bits are those of the two ops. Backward is that of an rmsnorm that reads the sum, and knows
/// nothing of it.
void fuse_residual_norms(Program& program);

}  // namespace ztrain::program
