#pragma once
// The joint graph of a job's Programs over all ranks, proven before any of them runs.

#include <functional>
#include <vector>

#include "program/ir/program.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::job {

/// The Programs of a job, in a fixed order.
using Programs = std::vector<const program::Program*>;

/// Collective. Ranks whose Programs communicate alike are one class: rank 0 compiles one member of each other
/// class than its own (compile: all Programs of a rank, by value) and proves every Program's joint graph.
/// Throws AgreedError on every rank when a proof fails.
void prove_together(const runtime::Session& session, const Programs& own,
                    const std::function<std::vector<program::Program>(int rank)>& compile);

}  // namespace ztrain::job
