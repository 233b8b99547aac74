#pragma once
// Products on CPUs whose m or k is known only when they run, as those of groups of rows are. Nothing is
// prepared for one size, so that a thousand sizes cost as one does.

#include <cstdint>
#include <memory>
#include <string>

#include "base/dtype.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// Addresses of one run. The bias is read only if the shape has one.
struct GemmOperands {
  const void* a;
  const void* b;
  const void* bias;
  void* c;
  void* workspace;  ///< gemm_ragged_workspace_bytes() of sizes that are at least these
};

class RaggedGemm {
 public:
  virtual ~RaggedGemm() = default;
  RaggedGemm() = default;
  RaggedGemm(const RaggedGemm&) = delete;
  RaggedGemm& operator=(const RaggedGemm&) = delete;

  /// Is called once, before the first run: takes the ways that the Exec's GemmLibrary says.
  virtual void prepare(Exec&) {}

  /// shape: complete, and the one that was prepared but for m and k, which are positive. Rows of C do not
  /// depend on the rows that are formed with them, but for how many they are.
  virtual void run(Exec& exec, const GemmShape& shape, const GemmOperands& operands) = 0;

  /// Returns what Gemm::implementation() does.
  virtual std::string implementation() const = 0;
};

/// Types and ways are make_gemm's, but that oneDNN's products of bf16 are always its BLAS's.
std::unique_ptr<RaggedGemm> make_ragged_gemm(const GemmShape& shape, DType in, DType out);

/// Returns oneDNN's product for bf16 and bf16 -> fp32, where the processor has instructions for them.
std::unique_ptr<RaggedGemm> make_ragged_onednn(const GemmShape& shape, DType out);

// The ways that need no preparation. They allocate nothing.

/// Multiplies shapes for which is_row_product() holds.
void multiply_row(Exec& exec, const GemmShape& shape, DType type, const GemmOperands& operands);
/// Multiplies by the plain loop.
void multiply_plainly(Exec& exec, const GemmShape& shape, DType in, DType out, const GemmOperands& operands);
/// Multiplies by AMX. Returns false, and does nothing, where make_gemm_tiles would return null.
bool multiply_tiles(Exec& exec, const GemmShape& shape, DType in, DType out, const GemmOperands& operands);
/// Multiplies fp32 by oneDNN's BLAS.
void multiply_sgemm(const GemmShape& shape, const GemmOperands& operands);

}  // namespace ztrain::kernels
