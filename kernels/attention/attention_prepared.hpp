#pragma once
// Prepared attention: made once, when an op is bound, and run every step with the pointers of that op. On
// CPUs it is attention.hpp's. On NVIDIA GPUs it is cuDNN's fused attention where that takes the case and
// needs no more than the workspace that is there (kernel_interface/attention_work.hpp says how), else
// attention_plain.hpp's.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/dtype.hpp"
#include "kernel_interface/attention_shape.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// Shapes are those of attention.hpp. On GPUs pointers are aligned to 16 bytes. Forward writes o and lse;
/// backward reads them and dout, and writes dq, dk and dv.
struct AttentionOperands {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const std::int32_t* document_start = nullptr;
  void* o = nullptr;
  void* lse = nullptr;
  const void* dout = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  std::byte* workspace = nullptr;  ///< aligned to 256
};

enum class Direction : std::uint8_t { forward, backward };

/// What does not change from step to step. type: of q, k, v and o, as those of attention.hpp.
struct AttentionSpec {
  Direction direction = Direction::forward;
  AttentionShape shape;
  DType type = DType::f32;
  std::int64_t workspace_bytes = 0;  ///< attention_{forward,backward}_workspace_bytes
};

class PreparedAttention {
 public:
  virtual ~PreparedAttention() = default;
  PreparedAttention() = default;
  PreparedAttention(const PreparedAttention&) = delete;
  PreparedAttention& operator=(const PreparedAttention&) = delete;

  virtual void run(Exec& exec, const AttentionOperands& operands) = 0;

  /// How it is done, and why not by the library where that was worth trying: for people.
  virtual std::string describe() const = 0;

  /// For a warning at the start: an attention of 16 bits that leaves the device's tensor cores idle.
  /// describe() says why.
  virtual bool slow() const { return false; }
};

/// Plans are shared by all that one Exec prepares. Throws Error for other types, or if the workspace is too
/// small for every way.
std::unique_ptr<PreparedAttention> make_attention(Exec& exec, const AttentionSpec& spec);

/// What describe() and slow() will say.
struct AttentionRemark {
  std::string description;
  bool slow = false;
};

/// attention_forward or attention_backward of this build, whatever a library has.
std::unique_ptr<PreparedAttention> make_attention_typed(const AttentionSpec& spec, AttentionRemark remark);

}  // namespace ztrain::kernels
