#include "tests/late_cuda/cublaslt_problem.hpp"

#include <bit>

#include "base/dtype.hpp"
#include "base/error.hpp"

namespace late_cublaslt {
namespace {

using ztrain::bf16;
using ztrain::f16;
using ztrain::f8e4m3;
using ztrain::f8e5m2;

bool is_fp8(cudaDataType_t type) {
  return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

/// Calls f with an element's type as that of a null pointer.
template <class F>
auto with_type(cudaDataType_t type, const F& f) {
  switch (type) {
    case CUDA_R_64F:
      return f(static_cast<double*>(nullptr));
    case CUDA_R_32F:
      return f(static_cast<float*>(nullptr));
    case CUDA_R_16BF:
      return f(static_cast<bf16*>(nullptr));
    case CUDA_R_16F:
      return f(static_cast<f16*>(nullptr));
    case CUDA_R_8F_E4M3:
      return f(static_cast<f8e4m3*>(nullptr));
    case CUDA_R_8F_E5M2:
      return f(static_cast<f8e5m2*>(nullptr));
    default:
      ztrain::fail("a matrix of the type {}, of which the product knows none", static_cast<int>(type));
  }
}

double element(cudaDataType_t type, const void* data, std::int64_t i) {
  return with_type(type,
                   [&]<class T>(const T*) { return static_cast<double>(static_cast<const T*>(data)[i]); });
}

void store(cudaDataType_t type, void* data, std::int64_t i, double value) {
  with_type(type, [&]<class T>(const T*) {
    if constexpr (sizeof(T) == 8)
      static_cast<T*>(data)[i] = value;
    else
      static_cast<T*>(data)[i] = static_cast<T>(static_cast<float>(value));
  });
}

/// As tensor cores see a number of fp32: rounded to 10 bits, half away from zero.
double tf32(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return static_cast<double>(std::bit_cast<float>((bits + 0x1000u) & ~std::uint32_t{0x1fff}));
}

/// The rows of the documentation's table that the product has use for.
void require_types(const Problem& p) {
  const Operation& o = p.operation;
  const cudaDataType_t a = p.a.type, b = p.b.type, d = p.d.type;
  const bool sums_in_fp32 = o.compute == CUBLAS_COMPUTE_32F && o.scale == CUDA_R_32F;
  bool known = false;
  if (p.fp8()) {
    known = sums_in_fp32 && is_fp8(a) && is_fp8(b) && (a == CUDA_R_8F_E4M3 || b == CUDA_R_8F_E4M3) &&
            (d == CUDA_R_16BF || d == CUDA_R_32F);
  } else if (a == CUDA_R_64F) {
    known = b == a && d == a && o.compute == CUBLAS_COMPUTE_64F && o.scale == a && !p.adds_bias();
  } else if (a == CUDA_R_32F) {
    const bool rounds = o.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && o.scale == CUDA_R_32F;
    known = b == a && d == a && (sums_in_fp32 || rounds);
  } else {
    known = sums_in_fp32 && b == a && (d == a || d == CUDA_R_32F);
  }
  REQUIRE(known, "types {} and {} to {}, summed in {} with factors of {}: the library has none such",
          static_cast<int>(a), static_cast<int>(b), static_cast<int>(d), static_cast<int>(o.compute),
          static_cast<int>(o.scale));
}

void require_fp8(const Problem& p, const Options& options) {
  const Operation& o = p.operation;
  REQUIRE(options.capability >= 89, "8-bit codes on compute capability {}", options.capability);
  REQUIRE(o.trans_a == CUBLAS_OP_T && o.trans_b == CUBLAS_OP_N,
          "8-bit codes: A is to be transposed, and B is not");
  REQUIRE(o.a_mode == o.b_mode, "8-bit codes: scales of A and B of different kinds");
  REQUIRE(
      o.a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F || (p.scales_of_rows() && options.capability == 90),
      "8-bit codes: scales of the kind {} on compute capability {}", o.a_mode, options.capability);
  for (const Matrix* x : {&p.a, &p.b, &p.d}) {
    const std::int64_t size = element_bytes(x->type);
    REQUIRE(x->ld * size % 16 == 0 && x->rows * size % 16 == 0,
            "8-bit codes: columns of {} elements, {} apart, of {} bytes, are no multiples of 16 bytes",
            x->rows, x->ld, size);
  }
}

void require_bias(const Problem& p) {
  REQUIRE(p.operation.epilogue == CUBLASLT_EPILOGUE_DEFAULT || p.adds_bias(), "the epilogue {}",
          p.operation.epilogue);
  if (!p.adds_bias()) return;
  const cudaDataType_t expected = p.fp8() ? CUDA_R_16BF : p.d.type;
  REQUIRE(p.bias_type() == expected, "a bias of the type {}, where the library adds {}",
          static_cast<int>(p.bias_type()), static_cast<int>(expected));
}

}  // namespace

std::int64_t element_bytes(cudaDataType_t type) {
  return with_type(type, []<class T>(const T*) { return static_cast<std::int64_t>(sizeof(T)); });
}

std::size_t Matrix::bytes() const {
  return static_cast<std::size_t>(((cols - 1) * ld + rows) * element_bytes(type));
}

bool Problem::fp8() const {
  return is_fp8(a.type) || is_fp8(b.type);
}

cudaDataType_t Problem::bias_type() const {
  return operation.bias_type < 0 ? d.type : static_cast<cudaDataType_t>(operation.bias_type);
}

Problem make_problem(const Operation& operation, const Matrix& a, const Matrix& b, const Matrix& c,
                     const Matrix& d, const Options& options) {
  const bool ta = operation.trans_a == CUBLAS_OP_T, tb = operation.trans_b == CUBLAS_OP_T;
  const Problem p{operation, a, b, d, ta ? a.cols : a.rows, tb ? b.rows : b.cols, ta ? a.rows : a.cols};
  for (const Matrix* x : {&a, &b, &c, &d})
    REQUIRE(x->rows > 0 && x->cols > 0 && x->ld >= x->rows, "a matrix of {} x {} with columns {} apart",
            x->rows, x->cols, x->ld);
  REQUIRE((tb ? b.cols : b.rows) == p.k && d.rows == p.m && d.cols == p.n,
          "op(A) {} x {} and op(B) {} x {} do not give D {} x {}", p.m, p.k, tb ? b.cols : b.rows, p.n,
          d.rows, d.cols);
  REQUIRE(c.type == d.type && c.rows == d.rows && c.cols == d.cols && c.ld == d.ld, "C is not as D is");
  require_types(p);
  require_bias(p);
  if (p.fp8()) require_fp8(p, options);
  return p;
}

void multiply(const Problem& p, const void* a, const void* b, void* d, bool accumulate) {
  const Operation& o = p.operation;
  const auto factor = [&](const Matrix& x, const void* data, bool transposed, std::int64_t i,
                          std::int64_t j) {
    const double value = element(x.type, data, transposed ? j + i * x.ld : i + j * x.ld);
    return o.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? tf32(value) : value;
  };
  const auto scale = [&](const void* scales, std::int64_t i) {
    return p.fp8() ? element(CUDA_R_32F, scales, p.scales_of_rows() ? i : 0) : 1.0;
  };
  for (std::int64_t j = 0; j < p.n; ++j)
    for (std::int64_t i = 0; i < p.m; ++i) {
      double sum = 0;
      for (std::int64_t k = 0; k < p.k; ++k)
        sum +=
            factor(p.a, a, o.trans_a == CUBLAS_OP_T, i, k) * factor(p.b, b, o.trans_b == CUBLAS_OP_T, k, j);
      sum *= scale(o.a_scale, i) * scale(o.b_scale, j);
      if (p.adds_bias()) sum += element(p.bias_type(), o.bias, i);
      if (accumulate) sum += element(p.d.type, d, i + j * p.d.ld);
      store(p.d.type, d, i + j * p.d.ld, sum);
    }
}

}  // namespace late_cublaslt
