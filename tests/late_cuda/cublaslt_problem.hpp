#pragma once
// A product as the late cuBLASLt is told of it, and what it is.

#include <cublasLt.h>

#include <cstdint>

#include "tests/late_cuda/late_cublaslt.hpp"

namespace late_cublaslt {

struct Matrix {
  cudaDataType_t type;
  std::int64_t rows, cols, ld;
  /// Column by column, to the end of the last one.
  std::size_t bytes() const;
};

struct Operation {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  std::int32_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N, epilogue = CUBLASLT_EPILOGUE_DEFAULT,
               bias_type = -1, a_mode = 0, b_mode = 0, multiprocessors = 0;
  std::int8_t fast = 0;
  const void *bias = nullptr, *a_scale = nullptr, *b_scale = nullptr;
};

struct Problem {
  Operation operation;
  Matrix a, b, d;
  std::int64_t m, n, k;

  bool fp8() const;
  bool adds_bias() const { return operation.epilogue == CUBLASLT_EPILOGUE_BIAS; }
  cudaDataType_t bias_type() const;
  bool scales_of_rows() const { return operation.a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F; }
  std::int64_t a_scales() const { return !fp8() ? 0 : scales_of_rows() ? m : 1; }
  std::int64_t b_scales() const { return !fp8() ? 0 : scales_of_rows() ? n : 1; }
};

/// Bytes of an element; 0: the product knows none of the type.
std::int64_t element_bytes(cudaDataType_t type);

/// Throws Error for what the library does not take.
Problem make_problem(const Operation& operation, const Matrix& a, const Matrix& b, const Matrix& c,
                     const Matrix& d, const Options& options);

/// D = A B (+ bias) (+ D), in float64, with the operation's scales and bias as they are now.
void multiply(const Problem& p, const void* a, const void* b, void* d, bool accumulate);

}  // namespace late_cublaslt
