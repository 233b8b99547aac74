#include "kernels/attention/attention_cudnn.hpp"

#include <exception>
#include <unordered_map>
#include <vector>

#include "base/error.hpp"
#include "kernels/attention/attention_graph_cudnn.hpp"

namespace ztrain::kernels {

class AttentionPlan {
 public:
  explicit AttentionPlan(CudnnGraph built) : graph(std::move(built)) { place({}); }

  /// The library may have put entries of its own beside ours. Allocates the first time alone.
  void place(const AttentionPointers& values) {
    for (std::size_t i = 1; i < values.of.size(); ++i) pointers[static_cast<std::int64_t>(i)] = values.of[i];
  }

  CudnnGraph graph;
  std::unordered_map<std::int64_t, void*> pointers;  ///< by uid
};

namespace {

void check_cudnn(cudnnStatus_t status, const char* what) {
  REQUIRE(status == CUDNN_STATUS_SUCCESS, "attention: cuDNN could not {}: {}", what,
          cudnnGetErrorString(status));
}

FoundPlan make_plan(cudnnHandle_t handle, const AttentionRequest& request) {
  if (std::string why = unpromised(request, cudnnGetVersion()); !why.empty())
    return {nullptr, std::move(why)};
  CudnnGraph graph = describe_attention(request);
  std::string why = choose_plans(*graph, {handle}, request);
  if (why.empty()) why = compile_plan(*graph, request);
  if (!why.empty()) return {nullptr, std::move(why)};
  return {std::make_shared<AttentionPlan>(std::move(graph)), {}};
}

}  // namespace

struct AttentionPlans {
  struct Entry {
    AttentionRequest request;
    FoundPlan found;
  };

  explicit AttentionPlans(void* stream) {
    check_cudnn(cudnnCreate(&handle), "start");
    const cudnnStatus_t status = cudnnSetStream(handle, static_cast<cudaStream_t>(stream));
    if (status != CUDNN_STATUS_SUCCESS) cudnnDestroy(handle);
    check_cudnn(status, "take the stream");
  }
  ~AttentionPlans() { cudnnDestroy(handle); }
  AttentionPlans(const AttentionPlans&) = delete;
  AttentionPlans& operator=(const AttentionPlans&) = delete;

  cudnnHandle_t handle = nullptr;
  std::vector<Entry> entries;
};

std::shared_ptr<AttentionPlans> plans_of(Exec& exec) {
  auto& plans = attention_plans(exec);
  if (!plans) plans = std::make_shared<AttentionPlans>(native_stream(exec));
  return plans;
}

FoundPlan find_plan(AttentionPlans& plans, const AttentionRequest& request) {
  for (const auto& entry : plans.entries)
    if (entry.request == request) return entry.found;
  FoundPlan found;
  try {
    found = make_plan(plans.handle, request);
  } catch (const std::exception& error) {
    found.why_not = error.what();
  }
  plans.entries.push_back({request, found});
  return found;
}

void run_plan(AttentionPlans& plans, AttentionPlan& plan, const AttentionPointers& pointers,
              void* workspace) {
  plan.place(pointers);
  const std::string why = run_graph(*plan.graph, plans.handle, plan.pointers, workspace);
  REQUIRE(why.empty(), "attention: cuDNN could not run its plan: {}", why);
}

}  // namespace ztrain::kernels
