#pragma once
// Prepared products of matrices of 8-bit floating-point codes, the way tensor cores form them: both operands
// lie with k innermost, and come with the scales that turn codes back into values. Formats e4m3 and e5m2 as
// in Micikevicius et al., "FP8 Formats for Deep Learning", 2022.

#include <cstdint>
#include <memory>

#include "base/dtype.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// value = code * scale, scales fp32. tensorwise: one scale for a matrix. rowwise: one for each row of A (m
/// of them) and each row of B (n), so that A[i, :] and B[j, :] have their own.
enum class Fp8Scales { tensorwise, rowwise };

/// C[m, n] = A[m, k] B[n, k]^T (+ bias[n] on every row) (+ C when accumulate), of the values that codes and
/// scales stand for; all row-major. ld* are row strides in elements, 0: dense.
struct GemmFp8Shape {
  std::int64_t m = 0;
  std::int64_t n = 0;    ///< multiple of gemm_fp8_multiple
  std::int64_t k = 0;    ///< multiple of gemm_fp8_multiple
  std::int64_t lda = 0;  ///< strides: multiples of 16 bytes
  std::int64_t ldb = 0;
  std::int64_t ldc = 0;
  Fp8Scales scales = Fp8Scales::tensorwise;  ///< of both operands
  bool accumulate = false;
  bool bias = false;
  /// Lets the tensor cores keep sums in fewer bits than fp32 within a tile: faster, less accurate. For
  /// forward products; gradients should do without. CPUs always sum in fp32.
  bool fast_accumulation = false;
};

/// a and b: codes of e4m3 or e5m2, at most one of them e5m2. out: bf16 or fp32.
struct GemmFp8Types {
  DType a;
  DType b;
  DType out;
};

class GemmFp8 {
 public:
  virtual ~GemmFp8() = default;
  GemmFp8() = default;
  GemmFp8(const GemmFp8&) = delete;
  GemmFp8& operator=(const GemmFp8&) = delete;

  /// As Gemm::prepare.
  virtual void prepare(Exec&) {}

  /// All pointers are aligned to 16 bytes (single scales to 4), workspace to 256; workspace:
  /// gemm_fp8_workspace_bytes(). The scales are in device memory and read when the product runs. bias: bf16,
  /// read only if the shape has one.
  virtual void run(Exec& exec, const void* a, const float* a_scale, const void* b, const float* b_scale,
                   const void* bias, void* c, void* workspace) = 0;
};

/// The shape with its zero strides filled in. Throws Error where a stride is too short, or a size or stride
/// is not the multiple that it must be.
GemmFp8Shape complete(GemmFp8Shape shape);

/// Sums are formed in fp32. GPUs: cuBLASLt from compute capability 8.9 on, row-wise scales on 9.0 alone.
/// Throws Error for other types, where the device has no such product, and as complete().
std::unique_ptr<GemmFp8> make_gemm_fp8(const GemmFp8Shape& shape, const GemmFp8Types& types);

}  // namespace ztrain::kernels
