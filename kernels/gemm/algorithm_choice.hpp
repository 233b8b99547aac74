#pragma once
// The fastest of the algorithms that a library proposes for a product. Plain host code: what runs and
// measures them is handed in.

#include <optional>
#include <span>

#include "kernels/gemm/algorithm_table.hpp"

namespace ztrain::kernels {

struct Candidate {
  AlgorithmBytes bytes{};
  std::int64_t workspace = 0;  ///< bytes that it needs
};

class CandidateTimer {
 public:
  virtual ~CandidateTimer() = default;
  /// Measures once: microseconds of one launch; nothing where it cannot be launched.
  virtual std::optional<double> microseconds(const Candidate& candidate) = 0;
};

/// Measurements of each candidate, the candidates by turns; the medians are compared.
inline constexpr int candidate_rounds = 5;

/// Of those that fit the workspace and can be launched, the one of the least median; of those as good as that
/// one within measuring (2%), the one that the library proposed first. Those that the first round shows to
/// take twice as long as another are not measured again. Nothing where there is none.
std::optional<Algorithm> fastest(std::span<const Candidate> candidates, std::int64_t workspace,
                                 CandidateTimer& timer);

}  // namespace ztrain::kernels
