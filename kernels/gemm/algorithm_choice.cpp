#include "kernels/gemm/algorithm_choice.hpp"

#include <algorithm>
#include <vector>

namespace ztrain::kernels {
namespace {

struct Measured {
  const Candidate* candidate;
  std::vector<double> times;

  double median() const {
    std::vector<double> sorted = times;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

double least(const std::vector<Measured>& all) {
  double best = all.front().median();
  for (const Measured& m : all) best = std::min(best, m.median());
  return best;
}

/// Measures each once more; those that cannot be launched go.
void measure(std::vector<Measured>& all, CandidateTimer& timer) {
  std::erase_if(all, [&](Measured& m) {
    const auto time = timer.microseconds(*m.candidate);
    if (time) m.times.push_back(*time);
    return !time;
  });
}

}  // namespace

std::optional<Algorithm> fastest(std::span<const Candidate> candidates, std::int64_t workspace,
                                 CandidateTimer& timer) {
  constexpr double hopeless = 2, alike = 1.02;
  std::vector<Measured> all;
  for (const Candidate& candidate : candidates)
    if (candidate.workspace <= workspace) all.push_back({&candidate, {}});
  for (int round = 0; round < candidate_rounds; ++round) {
    measure(all, timer);
    if (all.empty()) return std::nullopt;
    if (round > 0) continue;
    const double bound = hopeless * least(all);
    std::erase_if(all, [&](const Measured& m) { return m.median() > bound; });
  }
  const double bound = alike * least(all);
  const auto first =
      std::find_if(all.begin(), all.end(), [&](const Measured& m) { return m.median() <= bound; });
  return Algorithm{first->candidate->bytes, first->median()};
}

}  // namespace ztrain::kernels
