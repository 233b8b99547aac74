#pragma once
// What the matrix products of one Exec share: how they compute, and how their algorithms are chosen.

#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/algorithm_table.hpp"
#include "kernels/exec.hpp"

namespace ztrain::kernels {

/// How a CPU forms products of bf16 matrices: by its own instructions for them, or in fp32 from widened
/// panels.
enum class Bf16Products : std::uint8_t { native, widened };

struct GemmLibrary {
  /// On CPUs. Unset: widened, as always where the processor has no instructions for them.
  std::optional<Bf16Products> bf16;

  // On GPUs:
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

/// Whether this processor has instructions for products of bf16 matrices; false on GPUs, where nothing is to
/// be chosen.
bool multiplies_bf16();

/// Native products are taken where they are at least this much faster. They were 2 times slower on one
/// processor with AVX512-BF16, and are meant to be 2 (AVX512-BF16) to 8 (AMX) times faster: the bound lies
/// where no processor is known, so that measuring twice gives the same answer.
inline constexpr double bf16_native_gain = 1.25;

/// Measures both on one product, in 20 ms or so. Results may differ in the last bits between the two: let one
/// rank measure and tell the others.
Bf16Products fastest_bf16_products(Exec& exec);

/// What algorithms measured here are valid for; nothing on CPUs.
std::optional<AlgorithmHome> algorithm_home();

}  // namespace ztrain::kernels
