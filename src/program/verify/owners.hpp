#pragma once
// The gradient's norm counts each element once, whoever holds copies of it.

#include "program/ir/program.hpp"

namespace ztrain::program {

/// Throws Error naming the parameter where this rank's part of the norm leaves out elements that it speaks
/// for, or counts those that another rank counts: of copies over `replicate`, and over `tensor` of what is
/// not cut there, the first rank's.
void verify_owners(const Program& program);

}  // namespace ztrain::program
