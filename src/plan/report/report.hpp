#pragma once
// Prints a plan for people, for programs and as a job script for SLURM (docs/plan.md describes them). Sizes
// in the text are decimal: GB is 1e9 bytes, as in [cluster] and as vendors count.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "plan/cost.hpp"
#include "plan/fit.hpp"
#include "plan/search.hpp"

namespace ztrain::plan {

/// Everything that `ztrain plan` finds out.
struct Plan {
  Question question;
  Cost cost;
  std::vector<Cost> strategies;         ///< the same deck under each strategy on the same mesh
  std::optional<Fixes> fixes;           ///< where it does not fit
  std::optional<Search> search;         ///< where it was asked for
  std::vector<std::string> notes{};     ///< what a run needs that is not here
  std::optional<Cost> other_overlap{};  ///< with tensor.overlap as the deck has it not, where that matters
  std::vector<OtherSums> other_sums{};  ///< of gradients, that are faster and fit
};

/// Lines of at most 100 columns.
std::string report_text(const Plan& plan);

nlohmann::ordered_json report_json(const Plan& plan);

/// A list of what a rank computes: kind, micro-batch, block, and seconds from `from`.
nlohmann::ordered_json work_json(const program::WorkList& work, double from = 0);

/// The deck under every strategy that does not choose a mesh of its own, as far as they go together; its own
/// row is `own`.
std::vector<Cost> costs_by_strategy(const Question& question, const Cost& own);

/// States that the classic formula gives for this deck's strategy, in bytes per rank.
double zero_paper_of(const Cost& cost);

/// A script for sbatch with the nodes, tasks, memory and time of the plan, which starts slurm/launch.sh with
/// the deck and its overrides in the folder of submission. Throws Error for a plan that does not fit. What
/// the plan does not know stands beside its line as a comment: the memory of processes, and how far the
/// estimated time is to be trusted.
std::string sbatch_text(const Plan& plan);

}  // namespace ztrain::plan
