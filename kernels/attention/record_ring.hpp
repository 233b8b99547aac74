#pragma once
// Attention of a part of the queries, to keys that go round the ranks of an axis or are all there
// (kernels/attention/rules_ring.cpp).

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/attention/record.hpp"
#include "kernels/record.hpp"
#include "layout/token_order.hpp"

namespace ztrain::program {

/// A node: the operands of attention, of which the keys and values, too, are this rank's part; without axes
/// they are those of all tokens. It may have sinks.
struct RingAttention : Attention {
  static constexpr std::string_view op = "ring_attention";
  static constexpr Count reads{4, 5}, writes = 2;
  std::int64_t axes = 0;  ///< bits of an AxisSet
  static constexpr auto fields() {
    return std::tuple_cat(Attention::fields(), std::tuple{Given{"axes", &RingAttention::axes}});
  }
};
/// One rank's queries and one rank's keys and values, in a ring of `ranks`. In a ring of 1: one rank's
/// queries, and the keys and values of all ranks.
struct RingPart : Attention {
  std::int64_t ranks = 0;
  std::vector<TokenRun> queries_at{}, keys_at{};  ///< the tokens that they are of
  bool accumulate = false;
  static constexpr auto fields() {
    return std::tuple_cat(
        Attention::fields(),
        std::tuple{Given{"ranks", &RingPart::ranks}, Given{"queries_at", &RingPart::queries_at},
                   Given{"keys_at", &RingPart::keys_at}, Given{"accumulate", &RingPart::accumulate}});
  }
};
/// q, k, v, document_start -> out [T, heads * head_dim], maximum and sum [T, heads]: AttentionSums of
/// kernels/attention/attention_part.hpp.
struct AttentionPart : RingPart {
  static constexpr std::string_view op = "attention_part";
  enum In : std::size_t { q, k, v, document_start };
  enum Out : std::size_t { out, maximum, sum };
  static constexpr Count reads{4, 7}, writes = 3;
};
/// out, maximum, sum -> o, lse.
struct AttentionMerge : NoConstants {
  static constexpr std::string_view op = "attention_merge";
  enum In : std::size_t { out, maximum, sum };
  enum Out : std::size_t { o, lse };
  static constexpr Count reads = 3, writes = 2;
};
/// q, k, v, o, lse, do, document_start -> dq, which it may add to, dk, dv, workspace.
struct AttentionPartGrad : RingPart {
  static constexpr std::string_view op = "attention_part_grad";
  enum In : std::size_t { q, k, v, o, lse, dout, document_start };
  enum Out : std::size_t { dq, dk, dv, workspace };
  static constexpr Count reads{7, 8}, writes = 4;
};

}  // namespace ztrain::program
