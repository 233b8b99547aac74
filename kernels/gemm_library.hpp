#pragma once
// What the matrix products of one Exec share on GPUs: how they compute, and how their algorithms are chosen.
// The products of CPUs look at nothing of it.

#include <memory>
#include <optional>

#include "kernels/algorithm_table.hpp"
#include "kernels/exec.hpp"

namespace ztrain::kernels {

struct GemmLibrary {
  /// Products of fp32 matrices round their factors to tf32.
  bool tf32 = false;
  /// What products run with; where it is silent, with the library's first proposal. Null: always with that.
  std::shared_ptr<AlgorithmTable> algorithms;
  /// Gemm::prepare measures what the table does not know, and records it. Set it on one rank alone, and give
  /// its table to all before the first product runs: each takes its algorithm then.
  bool tune = false;
  /// Of the vendor's library, made when first needed.
  std::shared_ptr<void> handle;
};

/// That of an Exec; set it before products are prepared.
GemmLibrary& gemm_library(Exec& exec);

/// What algorithms measured here are valid for; nothing on CPUs.
std::optional<AlgorithmHome> algorithm_home();

}  // namespace ztrain::kernels
