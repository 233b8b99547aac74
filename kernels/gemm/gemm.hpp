#pragma once
// Prepared dense products. A Gemm is made once, when an op is bound, and run every step with the pointers of
// that op.

#include <cstdint>
#include <memory>
#include <string>

#include "base/dtype.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// C[m, n] = op(A)[m, k] op(B)[k, n] (+ bias[n] on every row) (+ C when accumulate). All matrices are
/// row-major; op(A) is A[m, k], or the transpose of A[k, m] when trans_a; likewise B[k, n] or B[n, k]. ld*
/// are the row strides in elements.
struct GemmShape {
  bool trans_a = false;
  bool trans_b = false;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t lda = 0;  ///< 0 in any ld: dense
  std::int64_t ldb = 0;
  std::int64_t ldc = 0;
  bool accumulate = false;
  bool bias = false;
};

/// Of the operands of a product: all on multiples of 16 bytes, as tensors do, or some elsewhere.
enum class Starts : std::uint8_t { aligned, anywhere };

class Gemm {
 public:
  virtual ~Gemm() = default;
  Gemm() = default;
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  /// Once, before the first run, where time may be taken: what gemm_library.hpp says of measuring. Optional.
  virtual void prepare(Exec&, Starts = Starts::aligned) {}

  /// bias is read only if the shape has one; its type is that of A and B. workspace: gemm_workspace_bytes(),
  /// aligned to 256. Throws Error where operands start elsewhere than prepare() was told and, in 16 bits,
  /// that leaves the slow way alone.
  virtual void run(Exec& exec, const void* a, const void* b, const void* bias, void* c, void* workspace) = 0;

  /// For people, and for tests that look for slow ways: which kernel does it ("oneDNN gemm:jit, avx2"). What
  /// prepare() may still change is known after it.
  virtual std::string implementation() const = 0;

  /// For a warning at the start: a product of 16 bits that leaves the device's tensor cores idle.
  /// implementation() says why. Known as implementation() is.
  virtual bool slow() const { return false; }
};

/// A and B have type `in`, C has `out`: fp32 -> fp32, bf16 -> bf16, bf16 -> fp32, fp16 -> fp16, fp16 ->
/// fp32, fp64 -> fp64, summed in fp32 (fp64). On GPUs cuBLASLt's product, where it has one for the shape and
/// for where the matrices start, else the loop of gemm_reference.cu. On CPUs one row is a kernel of its own
/// (gemm_ways.hpp); for fp32 AMX's (GemmLibrary::fp32) or oneDNN's; for bf16 AMX's or oneDNN's where the
/// processor has one that is worth it (GemmLibrary::bf16), for all other 16-bit products that of fp32 on
/// widened panels; for fp64 a plain loop.
/// Throws Error for other types, or if the shape is not positive or a stride is too short.
std::unique_ptr<Gemm> make_gemm(const GemmShape& shape, DType in, DType out);

/// The loop, whatever the library has.
std::unique_ptr<Gemm> make_gemm_reference(const GemmShape& shape, DType in, DType out);

/// The shape with its zero strides filled in; throws as make_gemm does.
GemmShape complete(GemmShape shape);

}  // namespace ztrain::kernels
