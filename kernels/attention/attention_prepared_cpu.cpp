#include "kernels/attention/attention_prepared.hpp"

namespace ztrain::kernels {

std::unique_ptr<PreparedAttention> make_attention(Exec& /*exec*/, const AttentionSpec& spec) {
  return make_attention_typed(spec, {"blockwise on the CPU"});
}

}  // namespace ztrain::kernels
