#include "kernels/gemm/cublaslt_cuda.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernel_interface/with_type.hpp"
#include "kernels/gemm/algorithm_table.hpp"

namespace ztrain::kernels::cublaslt {
namespace {

cublasLtHandle_t handle_of(GemmLibrary& library) {
  if (!library.handle) {
    cublasLtHandle_t handle = nullptr;
    check(cublasLtCreate(&handle), "matrix products");
    library.handle = {handle, [](void* h) { cublasLtDestroy(static_cast<cublasLtHandle_t>(h)); }};
  }
  return static_cast<cublasLtHandle_t>(library.handle.get());
}

template <class Value>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, Value value,
         std::string_view what) {
  check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)), what);
}

/// What every algorithm must keep to: the reservation, where the matrices start, and sums in an order of
/// their own and in fp32. Sums split over blocks go through the workspace; in place, they would be rounded to
/// D's type.
Preference make_preference(const Problem& p) {
  cublasLtMatmulPreference_t raw = nullptr;
  check(cublasLtMatmulPreferenceCreate(&raw), p.key);
  Preference preference(raw);
  constexpr std::uint32_t reductions =
      CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<std::uint64_t>(gemm_cuda_workspace_bytes), p.key);
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions, p.key);
  const auto align = [&](cublasLtMatmulPreferenceAttributes_t attribute, const Side& side) {
    set(preference, attribute, static_cast<std::uint32_t>(side.alignment), p.key);
  };
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.a);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.b);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.d);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.d);
  return preference;
}

/// These pointers are parts of the operation. The heuristics do not follow them, but take their alignment for
/// the one to expect.
void point(const Problem& p, const void* bias, const void* a_scale, const void* b_scale) {
  if (p.bias_bytes > 0) set(p.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias, p.key);
  if (p.a_scale_bytes > 0) set(p.operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, a_scale, p.key);
  if (p.b_scale_bytes > 0) set(p.operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, b_scale, p.key);
}

void point_nowhere(const Problem& p) {
  const auto at = [](std::size_t alignment) { return reinterpret_cast<const void*>(alignment); };
  // Vectors of scales start as matrices do, a single one anywhere.
  const auto of_scales = [&](std::size_t bytes) { return at(bytes > sizeof(float) ? 16 : sizeof(float)); };
  point(p, at(static_cast<std::size_t>(p.a.alignment)), of_scales(p.a_scale_bytes),
        of_scales(p.b_scale_bytes));
}

/// At most `count`, the library's favourite first.
std::vector<cublasLtMatmulHeuristicResult_t> proposals(GemmLibrary& library, const Problem& p, int count) {
  const Preference preference = make_preference(p);
  point_nowhere(p);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(count));
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_of(library), p.operation.get(), p.a.layout.get(), p.b.layout.get(), p.d.layout.get(),
      p.d.layout.get(), preference.get(), count, results.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  check(status, p.key);
  results.resize(static_cast<std::size_t>(found));
  std::erase_if(results, [](const cublasLtMatmulHeuristicResult_t& r) {
    return r.state != CUBLAS_STATUS_SUCCESS ||
           r.workspaceSize > static_cast<std::size_t>(gemm_cuda_workspace_bytes);
  });
  return results;
}

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(AlgorithmBytes));

AlgorithmBytes bytes_of(const cublasLtMatmulAlgo_t& algorithm) {
  AlgorithmBytes bytes;
  std::memcpy(bytes.data(), &algorithm, sizeof(algorithm));
  return bytes;
}

cublasLtMatmulAlgo_t algorithm_of(const AlgorithmBytes& bytes) {
  cublasLtMatmulAlgo_t algorithm;
  std::memcpy(&algorithm, bytes.data(), sizeof(algorithm));
  return algorithm;
}

/// Whether the library accepts an algorithm that was kept.
bool accepts(GemmLibrary& library, const Problem& p, const cublasLtMatmulAlgo_t& algorithm) {
  cublasLtMatmulHeuristicResult_t result{};
  point_nowhere(p);
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(handle_of(library), p.operation.get(), p.a.layout.get(), p.b.layout.get(),
                              p.d.layout.get(), p.d.layout.get(), &algorithm, &result);
  return status == CUBLAS_STATUS_SUCCESS && result.state == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= static_cast<std::size_t>(gemm_cuda_workspace_bytes);
}

cudaDataType_t type_of(DType type) {
  switch (type) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::f32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    case DType::f8e4m3:
      return CUDA_R_8F_E4M3;
    case DType::f8e5m2:
      return CUDA_R_8F_E5M2;
    default:
      fail("matrix product: cuBLASLt has none for {}", name_of(type));
  }
}

/// The values once from the host, and then again and again from what is there already.
template <class T>
void repeat(const std::vector<T>& values, std::byte* to, std::size_t bytes, std::string_view what) {
  if (bytes == 0) return;
  std::size_t done = std::min(bytes, values.size() * sizeof(T));
  check(cudaMemcpy(to, values.data(), done, cudaMemcpyHostToDevice), what);
  while (done < bytes) {
    const std::size_t more = std::min(done, bytes - done);
    check(cudaMemcpyAsync(to + done, to, more, cudaMemcpyDeviceToDevice, nullptr), what);
    done += more;
  }
}

/// stream: of the random numbers.
void fill(const Side& side, std::byte* to, std::uint64_t stream, std::string_view what) {
  const auto draw = [&]<class T>() { repeat(tuning_values<T>(stream), to, side.bytes, what); };
  if (side.type == DType::f8e4m3) return draw.operator()<f8e4m3>();
  if (side.type == DType::f8e5m2) return draw.operator()<f8e5m2>();
  with_type(side.type, draw);
}

/// Device memory for the time of measuring, with random matrices.
class Scratch {
 public:
  explicit Scratch(const Problem& p) {
    for (const std::size_t bytes : {p.a.bytes, p.b.bytes, p.d.bytes, p.bias_bytes, p.a_scale_bytes,
                                    p.b_scale_bytes, static_cast<std::size_t>(gemm_cuda_workspace_bytes)})
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + (bytes + 255) / 256 * 256);
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, ends_.back());
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // takes the error back: that there is no room for measuring is none
      return;
    }
    check(status, p.key);
    data_.reset(static_cast<std::byte*>(data));
    draw(p);
    check(cudaDeviceSynchronize(), p.key);
  }

  bool available() const { return data_ != nullptr; }
  Operands operands() const { return {at(0), at(1), at(2), at(3), at(4), at(5), at(6)}; }

 private:
  struct Free {
    void operator()(std::byte* p) const { cudaFree(p); }
  };
  std::byte* at(std::size_t i) const { return data_.get() + (i == 0 ? 0 : ends_[i - 1]); }

  void draw(const Problem& p) {
    fill(p.a, at(0), 1, p.key);
    fill(p.b, at(1), 2, p.key);
    fill(p.d, at(2), 3, p.key);
    if (p.bias_bytes > 0) check(cudaMemsetAsync(at(3), 0, p.bias_bytes, nullptr), p.key);
    repeat(std::vector<float>(256, tuning_scale), at(4), p.a_scale_bytes, p.key);
    repeat(std::vector<float>(256, tuning_scale), at(5), p.b_scale_bytes, p.key);
  }

  std::vector<std::size_t> ends_;
  std::unique_ptr<std::byte, Free> data_;
};

class Event {
 public:
  explicit Event(std::string_view what) { check(cudaEventCreate(&event_), what); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Launches a candidate once to load it, once to see how long it takes, and then for some 2 ms.
class LaunchTimer : public CandidateTimer {
 public:
  LaunchTimer(GemmLibrary& library, const Problem& problem, const Operands& operands, cudaStream_t stream)
      : library_(library),
        problem_(problem),
        operands_(operands),
        stream_(stream),
        begin_(problem.key),
        end_(problem.key) {}

  std::optional<double> microseconds(const Candidate& candidate) override {
    constexpr double enough = 2000;  // microseconds
    constexpr int most = 50;
    const cublasLtMatmulAlgo_t algorithm = algorithm_of(candidate.bytes);
    if (launch(library_, problem_, algorithm, operands_, stream_) != CUBLAS_STATUS_SUCCESS) {
      cudaGetLastError();
      return std::nullopt;
    }
    const double once = measure(algorithm, 1);
    if (once >= enough) return once;
    return measure(algorithm, once * most <= enough ? most : static_cast<int>(enough / once) + 1);
  }

 private:
  /// Microseconds of one of so many launches.
  double measure(const cublasLtMatmulAlgo_t& algorithm, int launches) {
    check(cudaEventRecord(begin_.get(), stream_), problem_.key);
    for (int i = 0; i < launches; ++i)
      check(launch(library_, problem_, algorithm, operands_, stream_), problem_.key);
    check(cudaEventRecord(end_.get(), stream_), problem_.key);
    check(cudaEventSynchronize(end_.get()), problem_.key);
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()), problem_.key);
    return 1000.0 * static_cast<double>(milliseconds) / launches;
  }

  GemmLibrary& library_;
  const Problem& problem_;
  Operands operands_;
  cudaStream_t stream_;
  Event begin_, end_;
};

}  // namespace

void check(cublasStatus_t status, std::string_view what) {
  REQUIRE(status == CUBLAS_STATUS_SUCCESS, "{}: cuBLASLt: {}", what, cublasLtGetStatusString(status));
}

void check(cudaError_t status, std::string_view what) {
  REQUIRE(status == cudaSuccess, "{}: CUDA: {}", what, cudaGetErrorString(status));
}

Operation make_operation(cublasComputeType_t compute, cudaDataType_t scale, bool trans_a, bool trans_b,
                         std::string_view what) {
  cublasLtMatmulDesc_t raw = nullptr;
  check(cublasLtMatmulDescCreate(&raw, compute, scale), what);
  Operation operation(raw);
  const auto transposed = [](bool yes) -> std::int32_t { return yes ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, transposed(trans_a), what);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSB, transposed(trans_b), what);
  return operation;
}

void limit_multiprocessors(const GemmLibrary& library, Problem& problem) {
  if (library.multiprocessors == 0) return;
  set(problem.operation, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET,
      static_cast<std::int32_t>(library.multiprocessors), problem.key);
  problem.key += fmt::format(" on {} multiprocessors", library.multiprocessors);
}

Side make_side(DType type, std::int64_t rows, std::int64_t cols, std::int64_t ld, int alignment,
               std::string_view what) {
  cublasLtMatrixLayout_t raw = nullptr;
  check(cublasLtMatrixLayoutCreate(&raw, type_of(type), static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(cols), ld),
        what);
  return {Layout(raw), alignment, static_cast<std::size_t>(ld * cols * size_of(type)), type};
}

cublasStatus_t launch(GemmLibrary& library, const Problem& p, const cublasLtMatmulAlgo_t& algorithm,
                      const Operands& o, cudaStream_t stream) {
  point(p, o.bias, o.a_scale, o.b_scale);
  const double one64 = 1, zero64 = 0;
  const float one32 = 1, zero32 = 0;
  const void* const one = p.fp64 ? static_cast<const void*>(&one64) : &one32;
  const void* const zero = p.fp64 ? static_cast<const void*>(&zero64) : &zero32;
  return cublasLtMatmul(handle_of(library), p.operation.get(), one, o.a, p.a.layout.get(), o.b,
                        p.b.layout.get(), p.accumulate ? one : zero, o.d, p.d.layout.get(), o.d,
                        p.d.layout.get(), &algorithm, o.workspace,
                        static_cast<std::size_t>(gemm_cuda_workspace_bytes), stream);
}

std::optional<cublasLtMatmulAlgo_t> algorithm_for(GemmLibrary& library, const Problem& p) {
  if (library.algorithms)
    if (const auto known = library.algorithms->find(p.key)) {
      const cublasLtMatmulAlgo_t algorithm = algorithm_of(known->bytes);
      if (accepts(library, p, algorithm)) return algorithm;
    }
  const auto first = proposals(library, p, 1);
  if (first.empty()) return std::nullopt;
  return first.front().algo;
}

void tune(GemmLibrary& library, const Problem& p, cudaStream_t stream) {
  constexpr int most = 16;
  handle_of(library);
  if (!library.tune || !library.algorithms || library.algorithms->find(p.key)) return;
  std::vector<Candidate> candidates;
  for (const cublasLtMatmulHeuristicResult_t& r : proposals(library, p, most))
    candidates.push_back({bytes_of(r.algo), static_cast<std::int64_t>(r.workspaceSize)});
  if (candidates.empty()) return;
  Algorithm best{candidates.front().bytes, 0};
  if (const Scratch scratch(p); scratch.available()) {
    LaunchTimer timer(library, p, scratch.operands(), stream);
    if (const auto found = fastest(candidates, gemm_cuda_workspace_bytes, timer)) best = *found;
    check(cudaStreamSynchronize(stream), p.key);
  }
  library.algorithms->record(p.key, best);
}

}  // namespace ztrain::kernels::cublaslt

namespace ztrain::kernels {

std::optional<AlgorithmHome> algorithm_home() {
  int device = 0, driver = 0;
  cudaDeviceProp properties{};
  cublaslt::check(cudaGetDevice(&device), "matrix products");
  cublaslt::check(cudaGetDeviceProperties(&properties, device), "matrix products");
  cublaslt::check(cudaDriverGetVersion(&driver), "matrix products");
  return AlgorithmHome{properties.name, static_cast<std::int64_t>(cublasLtGetVersion()), driver};
}

}  // namespace ztrain::kernels
