#include <fmt/format.h>

#include <optional>

#include "base/error.hpp"
#include "kernels/gemm/cublaslt_cuda.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/gemm_ways.hpp"

namespace ztrain::kernels {
namespace {

using cublaslt::aligned;
using cublaslt::Problem;
using cublaslt::stream_of;
using cublaslt::usual_alignment;

cublasComputeType_t compute_type(DType in, bool tf32) {
  if (in == DType::f64) return CUBLAS_COMPUTE_64F;
  return in == DType::f32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

std::string key_of(const GemmShape& s, DType in, DType out, bool tf32, bool aligned) {
  return fmt::format("matrix product {}{} -> {} m {} n {} k {} A{} B{} strides {} {} {}{}{}{}", name_of(in),
                     in == DType::f32 && tf32 ? " as tf32" : "", name_of(out), s.m, s.n, s.k,
                     s.trans_a ? "^T" : "", s.trans_b ? "^T" : "", s.lda, s.ldb, s.ldc, s.bias ? " bias" : "",
                     s.accumulate ? " accumulate" : "", aligned ? "" : " unaligned");
}

/// A row-major matrix is the transpose of a column-major one of the same stride, and C^T = op(B)^T op(A)^T:
/// the library multiplies B by A, and what we add to every row is its bias, one value per row of its result.
Problem make_problem(const GemmShape& s, DType in, DType out, const GemmLibrary& library, bool aligned) {
  const bool tf32 = library.tf32;
  const auto alignment = [&](DType type) {
    return aligned ? usual_alignment : static_cast<int>(size_of(type));
  };
  const auto side = [&](DType type, bool transposed, std::int64_t rows, std::int64_t cols, std::int64_t ld,
                        const std::string& what) {
    return cublaslt::make_side(type, transposed ? cols : rows, transposed ? rows : cols, ld, alignment(type),
                               what);
  };
  Problem p;
  p.key = key_of(s, in, out, tf32, aligned);
  p.fp64 = in == DType::f64;
  p.accumulate = s.accumulate;
  p.operation = cublaslt::make_operation(compute_type(in, tf32), p.fp64 ? CUDA_R_64F : CUDA_R_32F, s.trans_b,
                                         s.trans_a, p.key);
  p.a = side(in, s.trans_b, s.n, s.k, s.ldb, p.key);
  p.b = side(in, s.trans_a, s.k, s.m, s.lda, p.key);
  p.d = side(out, false, s.n, s.m, s.ldc, p.key);
  if (s.bias) {
    p.bias_bytes = static_cast<std::size_t>(s.n * size_of(in));
    cublaslt::set(p.operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                  static_cast<std::int32_t>(CUBLASLT_EPILOGUE_BIAS), p.key);
  }
  cublaslt::limit_multiprocessors(library, p);
  return p;
}

class GemmCublasLt : public Gemm {
 public:
  GemmCublasLt(const GemmShape& shape, DType in, DType out)
      : shape_(shape), in_(in), out_(out), loop_(make_gemm_reference(shape, in, out)) {}

  void prepare(Exec& exec, Starts starts) override {
    GemmLibrary& library = gemm_library(exec);
    const Problem problem = make_problem(shape_, in_, out_, library, starts == Starts::aligned);
    if (library_adds_bias()) {
      cublaslt::tune(library, problem, stream_of(exec));
      // Another table may come before the first run, so which algorithm it is does not matter yet.
      if (!cublaslt::algorithm_for(library, problem))
        why_ = fmt::format("cuBLASLt has no algorithm for {}", problem.key);
    } else {
      why_ = fmt::format("cuBLASLt adds no bias of {} to {}", name_of(in_), problem.key);
    }
  }

  void run(Exec& exec, const void* a, const void* b, const void* bias, void* c, void* workspace) override {
    const bool usual = aligned(a) && aligned(b) && aligned(c) && (!shape_.bias || aligned(bias));
    const Product& product = product_for(exec, usual);
    if (!product.algorithm) {
      REQUIRE(size_of(in_) != 2 || slow() || usual,
              "{}: an operand starts on no multiple of {} bytes, and cuBLASLt has no algorithm for that; "
              "take a model "
              "whose widths are multiples of {}",
              product.problem.key, usual_alignment, usual_alignment / 2);
      return loop_->run(exec, a, b, bias, c, workspace);
    }
    const cublasStatus_t status =
        cublaslt::launch(gemm_library(exec), product.problem, *product.algorithm,
                         {b, a, c, bias, nullptr, nullptr, workspace}, stream_of(exec));
    cublaslt::check(status, product.problem.key);
  }

  std::string implementation() const override {
    if (why_.empty()) return "cuBLASLt";
    return (slow() ? "a loop without tensor cores: " : "a loop: ") + why_;
  }
  bool slow() const override { return !why_.empty() && size_of(in_) == 2; }

 private:
  struct Product {
    Problem problem;
    std::optional<cublasLtMatmulAlgo_t> algorithm;  ///< none: the loop
  };

  /// Its bias has the type of D, ours that of A and B; in fp64 it adds none.
  bool library_adds_bias() const { return !shape_.bias || (in_ == out_ && in_ != DType::f64); }

  const Product& product_for(Exec& exec, bool usual) {
    std::optional<Product>& product = usual ? usual_ : unaligned_;
    if (!product) {
      GemmLibrary& library = gemm_library(exec);
      product.emplace(Product{make_problem(shape_, in_, out_, library, usual), std::nullopt});
      if (library_adds_bias()) product->algorithm = cublaslt::algorithm_for(library, product->problem);
    }
    return *product;
  }

  GemmShape shape_;
  DType in_, out_;
  std::unique_ptr<Gemm> loop_;
  std::optional<Product> usual_, unaligned_;
  std::string why_;  ///< it is the loop for operands that start as prepare() was told; else empty
};

}  // namespace

std::unique_ptr<Gemm> make_gemm(const GemmShape& shape, DType in, DType out) {
  return std::make_unique<GemmCublasLt>(complete(shape), in, out);
}

bool multiplies_bf16() {
  return false;
}

std::string instructions_of(DType) {
  return "";
}

Bf16Products usual_bf16_products() {
  return Bf16Products::native;
}

bool splits_fp32() {
  return false;
}

Fp32Products usual_fp32_products() {
  return Fp32Products::native;
}

/// cuBLASLt has kernels of its own for one row.
std::unique_ptr<Gemm> make_gemm_row(const GemmShape& shape, DType in, DType out) {
  const GemmShape s = complete(shape);
  REQUIRE(is_row_product(s, in, out), "matrix product {} x {} x {}, {} -> {}: not that of one row", s.m, s.n,
          s.k, name_of(in), name_of(out));
  return make_gemm(s, in, out);
}

}  // namespace ztrain::kernels
