#include "kernels/attention/attention_part.hpp"

#include <cuda_runtime.h>

#include <utility>

#include "base/error.hpp"
#include "kernels/attention/attention_cudnn.hpp"
#include "kernels/attention/attention_documents.hpp"
#include "kernels/attention/attention_plain.hpp"
#include "kernels/attention/attention_prepared.hpp"
#include "kernels/launch/instances.hpp"

namespace ztrain::kernels {
namespace {

constexpr std::int64_t element = 2;  ///< bytes of bf16 and fp16

void* advance(const void* base, std::int64_t bytes) {
  return base == nullptr ? nullptr : static_cast<std::byte*>(const_cast<void*>(base)) + bytes;
}

/// k, v or a gradient of theirs; rows are elements from one token to the next.
void copy_rows(const DocumentPass& pass, const void* from, std::int64_t from_row, void* to,
               std::int64_t to_row) {
  const auto bytes = [](std::int64_t elements) { return static_cast<std::size_t>(element * elements); };
  const AttentionShape& s = pass.shape;
  const cudaError_t status = cudaMemcpy2DAsync(
      to, bytes(to_row), from, bytes(from_row), bytes(s.kv_heads * s.head_dim),
      static_cast<std::size_t>(s.tokens), cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(pass.stream));
  REQUIRE(status == cudaSuccess, "attention: copying keys, values or their gradients failed: {}",
          cudaGetErrorString(status));
}

/// By cuDNN, in one of the ways of kernel_interface/attention_work.hpp.
class Fused final : public PreparedAttention {
 public:
  Fused(std::shared_ptr<AttentionPlans> plans, std::shared_ptr<AttentionPlan> plan, AttentionRequest request,
        std::string tried)
      : plans_(std::move(plans)), plan_(std::move(plan)), r_(request), tried_(std::move(tried)) {}

  void run(Exec& exec, const AttentionOperands& p) override {
    const AttentionWork& w = r_.work;
    const DocumentPass pass{native_stream(exec),
                            r_.shape,
                            w,
                            p.document_start,
                            p.workspace,
                            r_.backward ? p.dq : p.o,
                            r_.backward ? r_.shape.q_row() : r_.shape.o_row()};
    if (w.way == AttentionWay::documents) {
      find_documents(pass);
    } else if (r_.backward) {
      pack_lse(pass, static_cast<const float*>(p.lse));
    }
    const AttentionOperands used = w.copies > 0 ? with_copies(p) : p;
    const std::int64_t kv_row = r_.shape.kv_row();
    if (w.copies > 0) {
      copy_rows(pass, p.k, kv_row, const_cast<void*>(used.k), w.kv_row);
      copy_rows(pass, p.v, kv_row, const_cast<void*>(used.v), w.kv_row);
    }
    std::int64_t launch = 0;
    for (std::int64_t entry = 0; entry < w.entries; entry += w.at_once) {
      if (w.way == AttentionWay::masked) write_mask(pass, entry, r_.type);
      for (std::int64_t head = 0; head < r_.shape.kv_heads; head += w.kv_heads)
        run_plan(*plans_, *plan_, pointers(used, entry, head, launch++), p.workspace + w.library);
    }
    if (w.copies > 0) {
      copy_rows(pass, used.dk, w.kv_row, p.dk, kv_row);
      copy_rows(pass, used.dv, w.kv_row, p.dv, kv_row);
    }
    if (w.way == AttentionWay::sequences) spoil_split_sequences(pass);
  }

  std::string describe() const override {
    const AttentionWork& w = r_.work;
    return fmt::format("cuDNN, {}: {} of {} entries and {} of {} key-value heads at once{}{}", name_of(w.way),
                       w.at_once, w.entries, w.kv_heads, r_.shape.kv_heads, tried_.empty() ? "" : "; not ",
                       tried_);
  }

 private:
  /// Of the launch that begins with this entry and key-value head.
  AttentionPointers pointers(const AttentionOperands& p, std::int64_t entry, std::int64_t kv_head,
                             std::int64_t launch) const {
    using enum AttentionTensor;
    const AttentionShape& s = r_.shape;
    const AttentionWork& w = r_.work;
    const bool ragged = w.way == AttentionWay::documents;
    const std::int64_t group = s.heads / s.kv_heads, token = ragged ? 0 : entry * w.length;
    const std::int64_t q_at = element * s.q_at(token, kv_head * group);
    const std::int64_t k_at = element * s.kv_at(token, kv_head);
    const std::int64_t o_at = element * s.o_at(token, kv_head * group);
    AttentionPointers at;
    at[q] = advance(p.q, q_at);
    at[k] = advance(p.k, k_at);
    at[v] = advance(p.v, k_at);
    at[o] = advance(p.o, o_at);
    at[dout] = advance(p.dout, o_at);
    at[dq] = advance(p.dq, q_at);
    at[dk] = advance(p.dk, k_at);
    at[dv] = advance(p.dv, k_at);
    at[lse] = advance(p.lse, 4 * (token * s.heads + kv_head * group));
    if (r_.backward && !ragged)
      at[lse] = p.workspace + w.lse + 4 * launch * w.at_once * w.kv_heads * group * w.length;
    at[mask] = p.workspace + w.mask;
    const std::int64_t row = 8 * (w.entries + 1);
    at[q_lengths] = at[k_lengths] = p.workspace + w.lengths;
    at[q_offsets] = p.workspace + w.offsets;
    at[k_offsets] = at[v_offsets] = p.workspace + w.offsets + row;
    at[o_offsets] = p.workspace + w.offsets + 2 * row;
    at[lse_offsets] = p.workspace + w.offsets + 3 * row;
    return at;
  }

  /// p, with the dense copies in the workspace in place of k, v, dk and dv.
  AttentionOperands with_copies(AttentionOperands p) const {
    std::byte* const at = p.workspace + r_.work.copies;
    const std::int64_t bytes = element * r_.shape.tokens * r_.work.kv_row;
    p.k = at;
    p.v = at + bytes;
    p.dk = at + 2 * bytes;
    p.dv = at + 3 * bytes;
    return p;
  }

  std::shared_ptr<AttentionPlans> plans_;
  std::shared_ptr<AttentionPlan> plan_;
  AttentionRequest r_;
  std::string tried_;
};

}  // namespace

std::unique_ptr<PreparedAttention> make_attention(Exec& exec, const AttentionSpec& spec) {
  const bool backward = spec.direction == Direction::backward;
  std::string tried;
  for (const AttentionWay way : attention_ways(spec.shape, spec.type, backward)) {
    const AttentionWork work = attention_work_of(spec.shape, spec.type, way, backward);
    REQUIRE(work.end <= spec.workspace_bytes, "attention: the workspace has {} bytes, way '{}' needs {}",
            spec.workspace_bytes, name_of(way), work.end);
    if (way == AttentionWay::plain) break;
    const auto plans = plans_of(exec);
    const AttentionRequest request{spec.shape, spec.type, work, backward};
    FoundPlan found = find_plan(*plans, request);
    if (found.plan) return std::make_unique<Fused>(plans, std::move(found.plan), request, std::move(tried));
    tried += fmt::format("{}{} ({})", tried.empty() ? "" : ", ", name_of(way), found.why_not);
  }
  if (size_of(spec.type) > 2) return make_attention_typed(spec, {"streaming kernels"});
  const std::string why = !tried.empty()            ? "not cuDNN: " + tried
                          : spec.shape.soft_cap > 0 ? "cuDNN does not cap scores"
                                                    : "cuDNN takes no such shape";
  return make_attention_typed(spec, {"streaming kernels without tensor cores; " + why, true});
}

template <class T>
void attention_forward(Exec& exec, const AttentionInput<T>& input, Matrix<T> o, Matrix<acc_t<T>> lse) {
  attention_plain_forward<T>(exec, input, o, lse);
}

template <class T>
void attention_backward(Exec& exec, const AttentionInput<T>& input, Matrix<const T> o,
                        Matrix<const acc_t<T>> lse, Matrix<const T> dout, Matrix<T> dq, Matrix<T> dk,
                        Matrix<T> dv, Vector<std::byte> workspace) {
  attention_plain_backward<T>(exec, input, o, lse, dout, dq, dk, dv, workspace);
}

double part_unit() {
  return plain_part_unit;
}

template <class T>
void attention_part(Exec& exec, const AttentionInput<T>& input, const AttentionSums<acc_t<T>>& sums,
                    bool resumes) {
  attention_plain_part<T>(exec, input, sums, resumes);
}

template <class T>
void attention_part_backward(Exec& exec, const AttentionInput<T>& input, Matrix<const T> o,
                             Matrix<const acc_t<T>> lse, Matrix<const T> dout,
                             const PartGradients<acc_t<T>>& gradients, Vector<std::byte> workspace) {
  attention_plain_part_backward<T>(exec, input, o, lse, dout, gradients, workspace);
}

template <class T>
void attention_cached(Exec& exec, const CachedAttentionInput<T>& input, Matrix<T> o) {
  attention_cached_plain<T>(exec, input, o);
}

ZTRAIN_INSTANCES(attention_forward)
ZTRAIN_INSTANCES(attention_backward)
ZTRAIN_INSTANCES(attention_part)
ZTRAIN_INSTANCES(attention_part_backward)
ZTRAIN_INSTANCES(attention_cached)

}  // namespace ztrain::kernels
