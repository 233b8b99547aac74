// cuBLASLt's functions.
#include <cublasLt.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "tests/late_cuda/cublaslt_problem.hpp"
#include "tests/late_cuda/late_cuda.hpp"

namespace late_cublaslt {
namespace {

struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t a = 256, b = 256, c = 256, d = 256;  ///< what they start on multiples of
};

/// What an algorithm of the library's holds, in its bytes.
struct Choice {
  std::uint64_t problem, workspace;
  std::uint32_t a, b, d, bias, a_scale, b_scale;  ///< as in Preference
};
static_assert(sizeof(Choice) <= sizeof(cublasLtMatmulAlgo_t));

/// Objects that callers know by handles.
template <class Handle, class T>
class Objects {
 public:
  Handle make(T object) {
    auto owned = std::make_unique<T>(std::move(object));
    const auto handle = reinterpret_cast<Handle>(owned.get());
    owned_.emplace(handle, std::move(owned));
    return handle;
  }
  T& at(Handle handle) const {
    const auto found = owned_.find(handle);
    REQUIRE(found != owned_.end(), "a handle that is none");
    return *found->second;
  }
  cublasStatus_t drop(Handle handle) {
    return owned_.erase(handle) > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
  }

 private:
  std::map<Handle, std::unique_ptr<T>> owned_;
};

struct Library {
  Options options;
  int launched = 0;
  int multiprocessors = 0;  ///< that the last launch was for
  std::string failure;
  Objects<cublasLtHandle_t, int> handles;
  Objects<cublasLtMatmulDesc_t, Operation> operations;
  Objects<cublasLtMatrixLayout_t, Matrix> layouts;
  Objects<cublasLtMatmulPreference_t, Preference> preferences;

  static Library& get() {
    static Library library;
    return library;
  }
};

/// f(Library&), whose errors the library remembers.
template <class F>
cublasStatus_t guarded(const F& f) {
  Library& library = Library::get();
  try {
    f(library);
    return CUBLAS_STATUS_SUCCESS;
  } catch (const std::exception& error) {
    library.failure = error.what();
    std::fprintf(stderr, "late cuBLASLt: %s\n", error.what());
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

template <class T>
void set(T& to, const void* value, std::size_t bytes) {
  REQUIRE(bytes == sizeof(T), "an attribute of {} bytes is given {}", sizeof(T), bytes);
  std::memcpy(&to, value, bytes);
}

/// What the address is a multiple of, at most 256.
std::uint32_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | 256;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

/// Of all that an algorithm depends on.
std::uint64_t number_of(const Problem& p) {
  const Operation& o = p.operation;
  std::uint64_t number = 14695981039346656037u;
  for (const std::int64_t part :
       {p.m, p.n, p.k, p.a.ld, p.b.ld, p.d.ld, std::int64_t{p.a.type}, std::int64_t{p.b.type},
        std::int64_t{p.d.type}, std::int64_t{o.compute}, std::int64_t{o.trans_a}, std::int64_t{o.trans_b},
        std::int64_t{o.epilogue}, std::int64_t{o.a_mode}, std::int64_t{o.fast},
        std::int64_t{o.multiprocessors}})
    number = (number ^ static_cast<std::uint64_t>(part)) * 1099511628211u;
  return number;
}

Choice choice_of(const cublasLtMatmulAlgo_t& algorithm) {
  Choice choice;
  std::memcpy(&choice, &algorithm, sizeof choice);
  return choice;
}

/// The workspaces of the algorithms that the library has for the problem: the first needs every byte that is
/// wanted.
std::vector<std::uint64_t> workspaces(const Problem& p, const Preference& wanted) {
  const std::uint32_t least = std::min({wanted.a, wanted.b, wanted.c, wanted.d});
  const bool half = element_bytes(p.a.type) == 2;
  const auto needed = static_cast<std::uint32_t>(p.fp8() ? 16 : half ? Library::get().options.alignment : 1);
  if (least < needed) return {};
  return {wanted.workspace, 0};
}

Problem problem_of(Library& library, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                   cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  const auto& layouts = library.layouts;
  return make_problem(library.operations.at(operation), layouts.at(a), layouts.at(b), layouts.at(c),
                      layouts.at(d), library.options);
}

struct Range {
  const char* what;
  const void* data;
  std::size_t bytes;
  std::uint32_t alignment;
};

void require_memory(const std::vector<Range>& ranges) {
  for (const Range& r : ranges) {
    REQUIRE(r.bytes == 0 || late_cuda::is_device_memory(r.data, r.bytes),
            "{}: its {} bytes are not the device's", r.what, r.bytes);
    REQUIRE(r.bytes == 0 || alignment_of(r.data) >= r.alignment,
            "{} starts on a multiple of {} bytes, and the algorithm was asked for with {}", r.what,
            alignment_of(r.data), r.alignment);
  }
}

/// D, which comes first, shares no byte with the others.
void require_apart(const std::vector<Range>& ranges) {
  const auto begin = [](const Range& r) { return static_cast<const std::byte*>(r.data); };
  const Range& d = ranges.front();
  for (const Range& r : std::span(ranges).subspan(1))
    REQUIRE(r.bytes == 0 || begin(r) + r.bytes <= begin(d) || begin(d) + d.bytes <= begin(r),
            "{} overlaps the result", r.what);
}

}  // namespace

void configure(const Options& options) {
  Library& library = Library::get();
  library.options = options;
  library.launched = library.multiprocessors = 0;
  library.failure.clear();
}

int products() {
  return Library::get().launched;
}

int multiprocessors() {
  return Library::get().multiprocessors;
}

std::string failure() {
  return Library::get().failure;
}

}  // namespace late_cublaslt

using namespace late_cublaslt;

extern "C" {

std::size_t cublasLtGetVersion() {
  return CUBLAS_VERSION;
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "not supported";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return guarded([&](Library& library) {
    // It allocates.
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess,
            "cublasLtCreate while work is captured, or after a failure");
    *handle = library.handles.make(0);
  });
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return Library::get().handles.drop(handle);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return guarded([&](Library& library) { *operation = library.operations.make({compute, scale}); });
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  return Library::get().operations.drop(operation);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t bytes) {
  return guarded([&](Library& library) {
    Operation& o = library.operations.at(operation);
    switch (attribute) {
      case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(o.trans_a, value, bytes);
      case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(o.trans_b, value, bytes);
      case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(o.epilogue, value, bytes);
      case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(o.bias, value, bytes);
      case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return set(o.bias_type, value, bytes);
      case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
        return set(o.a_scale, value, bytes);
      case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
        return set(o.b_scale, value, bytes);
      case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
        return set(o.a_mode, value, bytes);
      case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
        return set(o.b_mode, value, bytes);
      case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
        return set(o.multiprocessors, value, bytes);
      case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
        return set(o.fast, value, bytes);
      default:
        ztrain::fail("an operation's attribute {}", static_cast<int>(attribute));
    }
  });
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  return guarded([&](Library& library) {
    *layout =
        library.layouts.make({type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(cols), ld});
  });
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return Library::get().layouts.drop(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return guarded([&](Library& library) { *preference = library.preferences.make({}); });
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return Library::get().preferences.drop(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  return guarded([&](Library& library) {
    Preference& p = library.preferences.at(preference);
    std::uint32_t schemes = 0;
    switch (attribute) {
      case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(p.workspace, value, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return set(p.a, value, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return set(p.b, value, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return set(p.c, value, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(p.d, value, bytes);
      case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(schemes, value, bytes);
      default:
        ztrain::fail("a preference's attribute {}", static_cast<int>(attribute));
    }
  });
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int count,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  return guarded([&](Library& library) {
    library.handles.at(handle);
    *found = 0;
    const Problem p = problem_of(library, operation, a, b, c, d);
    const Preference& wanted = library.preferences.at(preference);
    const Operation& o = p.operation;
    for (const std::uint64_t workspace : workspaces(p, wanted)) {
      if (*found == count) break;
      const Choice choice{number_of(p),
                          workspace,
                          wanted.a,
                          wanted.b,
                          std::min(wanted.c, wanted.d),
                          alignment_of(o.bias),
                          alignment_of(o.a_scale),
                          alignment_of(o.b_scale)};
      cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
      result = {};
      std::memcpy(&result.algo, &choice, sizeof choice);
      result.workspaceSize = workspace;
      result.state = CUBLAS_STATUS_SUCCESS;
    }
    REQUIRE(*found > 0, "no algorithm for matrices on multiples of {}, {}, {} and {} bytes", wanted.a,
            wanted.b, wanted.c, wanted.d);
  });
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  return guarded([&](Library& library) {
    library.handles.at(handle);
    const Choice choice = choice_of(*algorithm);
    REQUIRE(choice.problem == number_of(problem_of(library, operation, a, b, c, d)),
            "an algorithm of another problem");
    *result = {};
    result->algo = *algorithm;
    result->workspaceSize = choice.workspace;
    result->state = CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  return guarded([&](Library& library) {
    library.handles.at(handle);
    const Problem p = problem_of(library, operation, a_layout, b_layout, c_layout, d_layout);
    const Operation& o = p.operation;
    const auto factor = [&](const void* x) {
      return o.scale == CUDA_R_64F ? *static_cast<const double*>(x) : *static_cast<const float*>(x);
    };
    REQUIRE(factor(alpha) == 1 && (factor(beta) == 0 || factor(beta) == 1) && c == d,
            "factors {} and {}, which the product has no use for, or a C beside D", factor(alpha),
            factor(beta));
    const Choice choice = choice_of(*algorithm);
    REQUIRE(choice.problem == number_of(p), "an algorithm of another problem");
    REQUIRE(choice.workspace <= workspace_bytes, "a workspace of {} bytes for an algorithm that needs {}",
            workspace_bytes, choice.workspace);
    const auto floats = [](std::int64_t count) { return static_cast<std::size_t>(count) * sizeof(float); };
    const std::size_t bias_bytes =
        p.adds_bias() ? static_cast<std::size_t>(p.m * element_bytes(p.bias_type())) : 0;
    const std::vector<Range> ranges{{"the result", d, p.d.bytes(), choice.d},
                                    {"A", a, p.a.bytes(), choice.a},
                                    {"B", b, p.b.bytes(), choice.b},
                                    {"the bias", o.bias, bias_bytes, choice.bias},
                                    {"the scales of A", o.a_scale, floats(p.a_scales()), choice.a_scale},
                                    {"the scales of B", o.b_scale, floats(p.b_scales()), choice.b_scale},
                                    {"the workspace", workspace, workspace_bytes, 256}};
    require_memory(ranges);
    require_apart(ranges);
    late_cuda::enqueue(
        stream,
        [p, a, b, d, workspace, bytes = choice.workspace, accumulate = factor(beta) == 1] {
          const late_cuda::Open open;
          std::memset(workspace, 0xa5, bytes);
          multiply(p, a, b, d, accumulate);
          return true;
        },
        "a product");
    ++library.launched;
    library.multiprocessors = o.multiprocessors;
  });
}

}  // extern "C"
