#pragma once
// Attention sinks (kernels/sinks/sinks.hpp). A node `attention` or `ring_attention` may have them as its last
// input; its forward ends with AttentionSinks, and its adjoint emits AttentionSinksGrad.

#include <cstdint>
#include <string_view>

#include "kernels/record.hpp"

namespace ztrain {

/// o [T, heads * head_dim] and lse [T, heads] of attention without sinks, sinks [all heads] -> o and lse with
/// sinks, in place.
struct AttentionSinks {
  static constexpr std::string_view op = "attention_sinks";
  enum In : std::size_t { o, lse, sinks };
  enum Out : std::size_t { o_with, lse_with };
  static constexpr Count reads = 3, writes = 2;
  std::int64_t first = 0;  ///< Index of the sink of the first of the heads.
  static constexpr auto fields() { return std::tuple{Unusual{"first", &AttentionSinks::first}}; }
};
/// do, o, lse (with sinks), sinks -> dsinks, workspace. dsinks is 0 for sinks of other heads.
struct AttentionSinksGrad {
  static constexpr std::string_view op = "attention_sinks_grad";
  enum In : std::size_t { dout, o, lse, sinks };
  enum Out : std::size_t { dsinks, workspace };
  static constexpr Count reads{4, 5}, writes = 2;
  std::int64_t first = 0;
  bool accumulate = false;
  static constexpr auto fields() {
    return std::tuple{Unusual{"first", &AttentionSinksGrad::first},
                      Given{accumulate_key, &AttentionSinksGrad::accumulate}};
  }
};

}  // namespace ztrain
