#pragma once
// Included by kernel sources only. cuBLASLt's descriptors with owners, and the choice of an algorithm for a
// problem that they describe. Everything here is column-major, as the library is.

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.hpp"
#include "kernels/gemm/gemm_library.hpp"

namespace ztrain::kernels::cublaslt {

/// Throws Error with the library's text. what: "matrix product bf16 ...".
void check(cublasStatus_t status, std::string_view what);
void check(cudaError_t status, std::string_view what);

struct Destroy {
  void operator()(cublasLtMatmulDescOpaque_t* p) const { cublasLtMatmulDescDestroy(p); }
  void operator()(cublasLtMatrixLayoutOpaque_t* p) const { cublasLtMatrixLayoutDestroy(p); }
  void operator()(cublasLtMatmulPreferenceOpaque_t* p) const { cublasLtMatmulPreferenceDestroy(p); }
};
using Operation = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy>;
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy>;
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroy>;

struct Side {
  Layout layout;
  int alignment = 0;      ///< bytes; what the matrix will start on a multiple of
  std::size_t bytes = 0;  ///< of the matrix, strides included
  DType type = DType::f32;
};

/// D = op(A) op(B) (+ bias) (+ D when accumulate), with one layout for C and D.
struct Problem {
  std::string key;  ///< what it computes: the key of an AlgorithmTable
  Operation operation;
  Side a, b, d;
  bool fp64 = false;  ///< of the factors of the product and of D; fp32 otherwise
  bool accumulate = false;
  std::size_t bias_bytes = 0;                        ///< 0: none
  std::size_t a_scale_bytes = 0, b_scale_bytes = 0;  ///< 0: none
};

struct Operands {
  const void* a;
  const void* b;
  void* d;
  const void* bias;
  const void* a_scale;
  const void* b_scale;
  void* workspace;  ///< gemm_cuda_workspace_bytes
};

/// What tensors start on, and what the fast algorithms want: bytes.
inline constexpr int usual_alignment = 16;
inline bool aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % usual_alignment == 0;
}

inline cudaStream_t stream_of(const Exec& exec) {
  return static_cast<cudaStream_t>(native_stream(exec));
}

/// An operation with its transpositions set, summed in `compute`.
Operation make_operation(cublasComputeType_t compute, cudaDataType_t scale, bool trans_a, bool trans_b,
                         std::string_view what);
Side make_side(DType type, std::int64_t rows, std::int64_t cols, std::int64_t ld, int alignment,
               std::string_view what);

template <class Value>
void set(const Operation& operation, cublasLtMatmulDescAttributes_t attribute, Value value,
         std::string_view what) {
  check(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof(value)), what);
}

/// Launches it; the result is cuBLASLt's.
cublasStatus_t launch(GemmLibrary& library, const Problem& problem, const cublasLtMatmulAlgo_t& algorithm,
                      const Operands& operands, cudaStream_t stream);

/// What the table says and the library still accepts, else the library's first proposal; nothing where it has
/// no algorithm for the problem.
std::optional<cublasLtMatmulAlgo_t> algorithm_for(GemmLibrary& library, const Problem& problem);

/// Tells the library on how many multiprocessors the problem is to run, and adds that to its key. A problem
/// is told once, before an algorithm is sought for it.
void limit_multiprocessors(const GemmLibrary& library, Problem& problem);

/// Makes the library's handle, which a capture could not. Where library.tune: measures the library's
/// proposals on random numbers in memory allocated for that while, and records the fastest, or the first one
/// if there is no memory for it. Waits for the stream.
void tune(GemmLibrary& library, const Problem& problem, cudaStream_t stream);

}  // namespace ztrain::kernels::cublaslt
