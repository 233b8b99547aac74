#pragma once
// The job script of a plan for SLURM: nodes, tasks, memory and time as the plan has them.

#include <string>

#include "plan/report.hpp"

namespace ztrain::plan {

/// A script for sbatch, which starts slurm/launch.sh with the deck and its overrides in the folder of
/// submission. Throws Error for a plan that does not fit. What the plan does not know stands beside its line
/// as a comment: the memory of processes, and how far the estimated time is to be trusted.
std::string sbatch_text(const Plan& plan);

}  // namespace ztrain::plan
