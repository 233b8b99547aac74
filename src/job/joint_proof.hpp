#pragma once
// The joint graph of a job's Programs over all ranks, proven before any of them runs.

#include <functional>
#include <vector>

#include "program/jobs/compile.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"

namespace ztrain::job {

/// The Programs of a job, in a fixed order.
using Programs = std::vector<const program::Program*>;

/// All Programs of a rank, by value.
using Compile = std::function<std::vector<program::Program>(int rank)>;

/// Collective. Ranks whose Programs communicate alike are one class: rank 0 compiles one member of each other
/// class than its own and proves every Program's joint graph. The phase goes on with each class and each
/// Program, on all ranks: those that wait for rank 0 are not hung. Throws AgreedError on every rank when a
/// proof fails, with keys of `spec` to change meanwhile.
void prove_together(const runtime::Session& session, telemetry::Phase& phase, const Programs& own,
                    const Compile& compile, const program::JobSpec& spec);

}  // namespace ztrain::job
