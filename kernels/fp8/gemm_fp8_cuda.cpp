#include <fmt/format.h>

#include <optional>

#include "base/error.hpp"
#include "kernels/fp8/gemm_fp8.hpp"
#include "kernels/gemm/cublaslt_cuda.hpp"

namespace ztrain::kernels {
namespace {

using cublaslt::aligned;
using cublaslt::Problem;
using cublaslt::stream_of;
using cublaslt::usual_alignment;

void require_types(const GemmFp8Types& t) {
  const bool codes = is_fp8(t.a) && is_fp8(t.b) && (t.a == DType::f8e4m3 || t.b == DType::f8e4m3);
  REQUIRE(
      codes && (t.out == DType::bf16 || t.out == DType::f32),
      "8-bit matrix product: no kernel for {} x {} -> {}; use fp8_e4m3 for one of the operands, fp8_e4m3 or "
      "fp8_e5m2 for the other, and bf16 or fp32 for the result",
      name_of(t.a), name_of(t.b), name_of(t.out));
}

std::string key_of(const GemmFp8Shape& s, const GemmFp8Types& t) {
  return fmt::format("8-bit matrix product {} x {} -> {} m {} n {} k {} strides {} {} {} {}{}{}{}",
                     name_of(t.a), name_of(t.b), name_of(t.out), s.m, s.n, s.k, s.lda, s.ldb, s.ldc,
                     s.scales == Fp8Scales::rowwise ? "rowwise" : "tensorwise", s.bias ? " bias" : "",
                     s.accumulate ? " accumulate" : "", s.fast_accumulation ? " fast" : "");
}

void set_scales(Problem& p, const GemmFp8Shape& s) {
  const bool rowwise = s.scales == Fp8Scales::rowwise;
  const auto mode = static_cast<std::int32_t>(rowwise ? CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F
                                                      : CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F);
  cublaslt::set(p.operation, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode, p.key);
  cublaslt::set(p.operation, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode, p.key);
  p.a_scale_bytes = sizeof(float) * static_cast<std::size_t>(rowwise ? s.n : 1);
  p.b_scale_bytes = sizeof(float) * static_cast<std::size_t>(rowwise ? s.m : 1);
}

void set_bias(Problem& p, const GemmFp8Shape& s) {
  p.bias_bytes = static_cast<std::size_t>(s.n * size_of(DType::bf16));
  cublaslt::set(p.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::int32_t>(CUBLASLT_EPILOGUE_BIAS),
                p.key);
  cublaslt::set(p.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(CUDA_R_16BF),
                p.key);
}

/// As in gemm_cublaslt_cuda.cpp, C^T = B A^T column by column: the library's first operand is B, transposed,
/// its second one A, and so with the scales. That is the one layout that it has for 8 bits.
Problem make_problem(const GemmFp8Shape& s, const GemmFp8Types& t) {
  Problem p;
  p.key = key_of(s, t);
  p.accumulate = s.accumulate;
  p.operation = cublaslt::make_operation(CUBLAS_COMPUTE_32F, CUDA_R_32F, true, false, p.key);
  p.a = cublaslt::make_side(t.b, s.k, s.n, s.ldb, usual_alignment, p.key);
  p.b = cublaslt::make_side(t.a, s.k, s.m, s.lda, usual_alignment, p.key);
  p.d = cublaslt::make_side(t.out, s.n, s.m, s.ldc, usual_alignment, p.key);
  cublaslt::set(p.operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(s.fast_accumulation),
                p.key);
  set_scales(p, s);
  if (s.bias) set_bias(p, s);
  return p;
}

class GemmFp8CublasLt : public GemmFp8 {
 public:
  GemmFp8CublasLt(const GemmFp8Shape& shape, const GemmFp8Types& types)
      : has_bias_(shape.bias),
        rowwise_(shape.scales == Fp8Scales::rowwise),
        problem_(make_problem(shape, types)) {}

  void prepare(Exec& exec) override {
    limit(exec);
    cublaslt::tune(gemm_library(exec), problem_, stream_of(exec));
    some_algorithm(exec);  // another table may come before the first run, but that there is one is known
  }

  void run(Exec& exec, const void* a, const float* a_scale, const void* b, const float* b_scale,
           const void* bias, void* c, void* workspace) override {
    REQUIRE(aligned(a) && aligned(b) && aligned(c) && (!has_bias_ || aligned(bias)) &&
                (!rowwise_ || (aligned(a_scale) && aligned(b_scale))),
            "{}: its operands must start on multiples of {} bytes", problem_.key, usual_alignment);
    limit(exec);
    if (!algorithm_) algorithm_ = some_algorithm(exec);
    const cublasStatus_t status =
        cublaslt::launch(gemm_library(exec), problem_, *algorithm_,
                         {b, a, c, bias, b_scale, a_scale, workspace}, stream_of(exec));
    cublaslt::check(status, problem_.key);
  }

 private:
  cublasLtMatmulAlgo_t some_algorithm(Exec& exec) const {
    const auto found = cublaslt::algorithm_for(gemm_library(exec), problem_);
    REQUIRE(found, "{}: cuBLASLt has none on this GPU{}", problem_.key,
            rowwise_ ? "; it takes scales of rows on compute capability 9.0" : "");
    return *found;
  }

  void limit(Exec& exec) {
    if (!limited_) cublaslt::limit_multiprocessors(gemm_library(exec), problem_);
    limited_ = true;
  }

  bool has_bias_, rowwise_, limited_ = false;
  Problem problem_;
  std::optional<cublasLtMatmulAlgo_t> algorithm_;
};

}  // namespace

std::unique_ptr<GemmFp8> make_gemm_fp8(const GemmFp8Shape& shape, const GemmFp8Types& types) {
  require_types(types);
  return std::make_unique<GemmFp8CublasLt>(complete(shape), types);
}

}  // namespace ztrain::kernels
