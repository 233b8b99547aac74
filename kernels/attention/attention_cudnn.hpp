#pragma once
// cuDNN's fused attention: plans, built once for each request and shared by the layers of a model.

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "base/dtype.hpp"
#include "kernel_interface/attention_shape.hpp"
#include "kernel_interface/attention_work.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// The tensors of a graph; their values are cuDNN's uids. Lengths are given twice, for queries and for keys,
/// and each ragged tensor has its own offsets; several may be the same memory.
enum class AttentionTensor : std::int64_t {
  q = 1,
  k,
  v,
  o,
  lse,
  dout,
  dq,
  dk,
  dv,
  mask,
  q_lengths,
  k_lengths,
  q_offsets,
  k_offsets,
  v_offsets,
  o_offsets,
  lse_offsets,
};

/// By AttentionTensor; those that a graph has not are not looked at.
struct AttentionPointers {
  std::array<void*, static_cast<std::size_t>(AttentionTensor::lse_offsets) + 1> of{};
  void*& operator[](AttentionTensor t) { return of[static_cast<std::size_t>(t)]; }
};

/// What is asked of the library. type: bf16 or fp16; sums are fp32.
struct AttentionRequest {
  AttentionShape shape;
  DType type = DType::bf16;
  AttentionWork work;
  bool backward = false;
  bool operator==(const AttentionRequest&) const = default;
};

class AttentionPlan;

/// A plan, or in `why_not` what the library said.
struct FoundPlan {
  std::shared_ptr<AttentionPlan> plan;
  std::string why_not;
};

/// The plans of an Exec, made with their handle at the first call. Throws Error when the library does not
/// start.
std::shared_ptr<AttentionPlans> plans_of(Exec& exec);

/// The plan for one launch of the request. It needs at most the library's part of request.work's workspace.
FoundPlan find_plan(AttentionPlans& plans, const AttentionRequest& request);

/// Enqueues one launch on the stream of the plans' Exec. Throws Error with the library's message.
void run_plan(AttentionPlans& plans, AttentionPlan& plan, const AttentionPointers& pointers, void* workspace);

}  // namespace ztrain::kernels
