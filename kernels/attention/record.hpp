#pragma once
// Attention, of training and over a cache of keys and values.

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/record.hpp"

namespace ztrain {

/// q [T, heads * head_dim], k, v, document_start [T], (sinks) -> o, lse [T, heads], (workspace); joined: qkv,
/// document_start, (sinks), where q, k and v are columns of one matrix. Nodes alone have sinks; their ops are
/// then followed by AttentionSinks (kernels/sinks). The rest as in kernel_interface/attention_shape.hpp.
struct Attention {
  static constexpr std::string_view op = "attention";
  enum In : std::size_t { q, k, v };
  enum Out : std::size_t { o, lse, workspace };
  static constexpr Count reads{2, 5}, writes{2, 3};
  std::int64_t heads = 0, kv_heads = 0, window = 0;
  std::int64_t sequence = 0, documents = 0;
  bool deterministic = true;
  bool joined = false;
  double scale = 0, soft_cap = 0;
  bool rotary = true;           ///< Whether the family turns q and k by their positions before (op `rope`).
  std::int64_t first_sink = 0;  ///< Index among the sinks of that of the first head.
  std::vector<std::int64_t> layout{};  ///< What BlockLayout views; empty: all blocks are present.
  /// The inputs that hold q, k and v.
  constexpr std::size_t held() const { return joined ? 1 : 3; }
  constexpr std::size_t document_start() const { return held(); }
  constexpr std::size_t sinks() const { return held() + 1; }
  static constexpr auto fields() {
    return std::tuple{Given{"heads", &Attention::heads},
                      Given{"kv_heads", &Attention::kv_heads},
                      Unusual{"window", &Attention::window},
                      Unusual{"sequence", &Attention::sequence},
                      Unusual{"documents", &Attention::documents},
                      Unusual{"deterministic", &Attention::deterministic},
                      Unusual{"joined", &Attention::joined},
                      Unusual{"scale", &Attention::scale},
                      Unusual{"soft_cap", &Attention::soft_cap},
                      Unusual{"rotary", &Attention::rotary},
                      Unusual{"first_sink", &Attention::first_sink},
                      Unusual{"layout", &Attention::layout}};
  }
};
/// q, k, v (or qkv), o, lse, do, document_start -> dq, dk, dv (or dqkv), workspace.
struct AttentionGrad : Attention {
  static constexpr std::string_view op = "attention_grad";
  constexpr std::size_t attended() const { return held(); }
  constexpr std::size_t log_sums() const { return held() + 1; }
  constexpr std::size_t dout() const { return held() + 2; }
  constexpr std::size_t document_start() const { return held() + 3; }
  constexpr std::size_t spare() const { return held(); }  ///< the workspace
  static constexpr Count reads{5, 7}, writes{2, 4};
};
/// rows [T, heads * head_dim], begin [1], cache [heads * capacity, head_dim] -> the cache, whose rows from
/// `begin` on of each head are written.
struct CacheAppend : NoConstants {
  static constexpr std::string_view op = "cache_append";
  enum In : std::size_t { rows, begin, cache };
  enum Out : std::size_t { appended };
  static constexpr Count reads = 3, writes = 1;
};
/// q, k_cache, v_cache, begin [1], (sinks) -> o. Has the constants of the attention that it replaces.
struct AttentionCached : Attention {
  static constexpr std::string_view op = "attention_cached";
  enum In : std::size_t { query, k_cache, v_cache, begin, sink_logits };
  static constexpr Count reads{4, 5}, writes = 1;
};

}  // namespace ztrain
