#pragma once
// What the matrix products of one Exec share: how they compute, and how their algorithms are chosen.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/dtype.hpp"
#include "kernels/gemm/algorithm_table.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// How a CPU forms products of bf16 matrices: by its own instructions for them, or in fp32 from widened
/// panels.
enum class Bf16Products : std::uint8_t { native, widened };

/// How a CPU forms products of fp32 matrices: by its fused multiply-adds, or, with AMX, as six products of
/// the three bf16 whose sum each number is, which is about as exact (kernels/gemm/tiles).
enum class Fp32Products : std::uint8_t { native, split };

struct GemmLibrary {
  /// On CPUs. Unset: widened, as always where the processor has no instructions for them.
  std::optional<Bf16Products> bf16;
  /// On CPUs; native in any case where the processor has no AMX.
  Fp32Products fp32 = Fp32Products::native;

  // On GPUs:
  /// Products of fp32 matrices round their factors to tf32.
  bool tf32 = false;
  /// What products run with; where it is silent, with the library's first proposal. Null: always with that.
  std::shared_ptr<AlgorithmTable> algorithms;
  /// Gemm::prepare measures what the table does not know, and records it. Set it on one rank of
  /// those that compute the same products, and give its table to all before the first product runs: each
  /// takes its algorithm then.
  bool tune = false;
  /// Number of multiprocessors that products can count on while ranks communicate; 0: all.
  int multiprocessors = 0;
  /// Of the vendor's library, made when first needed.
  std::shared_ptr<void> handle;
};

/// Returns the library of an Exec, which the first call makes; set it before products are prepared.
inline GemmLibrary& gemm_library(Exec& exec) {
  std::shared_ptr<GemmLibrary>& library = gemm_library_slot(exec);
  if (!library) library = std::make_shared<GemmLibrary>();
  return *library;
}

/// Whether this processor has instructions for products of bf16 matrices (AVX512-BF16 or AMX), and
/// ONEDNN_MAX_CPU_ISA lets the library use them; false on GPUs, where nothing is to be chosen.
bool multiplies_bf16();
/// Whether it has AMX for them, likewise.
bool multiplies_tiles();
/// Whether products of fp32 can be split: with AMX, where this build and the operating system have it too.
bool splits_fp32();

/// What suits this processor, by its model and not by a clock, so that each start and each rank of one model
/// decides alike. native where it has AMX, or AVX512-BF16 and is not Intel's: there those instructions are
/// twice as fast as fp32's. On an Intel processor with AVX512-BF16 and without AMX (or where
/// ONEDNN_MAX_CPU_ISA forbids AMX) they were measured at half the rate of fp32. Always widened without such
/// instructions.
Bf16Products usual_bf16_products();
/// Likewise: split where they can be.
Fp32Products usual_fp32_products();

/// On CPUs, what the last bits of a training in `parameters` hang on beside these choices: the instructions
/// that this program was compiled for and, where not all is fp64, the library's version and what it generates
/// code for. "" on GPUs.
std::string instructions_of(DType parameters);

/// What algorithms measured here are valid for; nothing on CPUs.
std::optional<AlgorithmHome> algorithm_home();

}  // namespace ztrain::kernels
