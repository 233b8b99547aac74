#pragma once
// The shape of an attention op: what kernels, their workspaces and the op table share.

#include <cmath>
#include <cstdint>

#include "base/block_layout.hpp"

namespace ztrain {

/// Query head h reads key-value head h / (heads / kv_heads).
struct AttentionShape {
  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< divides heads
  std::int64_t head_dim = 0;  ///< 1 .. 256
  std::int64_t window = 0;    ///< tokens that a token attends to at most, itself included; 0: no limit
  /// Elements from one token to the next of q, k and v, and of their gradients, where they are columns of one
  /// matrix; 0: each is dense. Outputs and their gradients are always dense.
  std::int64_t row = 0;
  // What a GPU library may rely on; the results do not depend on it.
  std::int64_t sequence = 0;   ///< no document goes across a multiple of it; 0: not known
  std::int32_t documents = 0;  ///< most documents of the tokens; 0: not known
  bool deterministic = true;   ///< gradients have the same bits on every run
  /// Where the tokens are a part of those that are attended to: how many these are, and which of them the
  /// first token is. document_start counts from the first of them. 0 and 0: the tokens attend to themselves.
  std::int64_t keys = 0;
  std::int64_t first_query = 0;
  /// Of a part of the keys (kernels/attention/attention_part.hpp): the place of the first of them among those
  /// that document_start counts. first_query counts from there, and may be any number.
  std::int64_t key_begin = 0;
  double scale = 0;  ///< Factor that makes a score of the product of a query and a key. 0: 1 / sqrt(head_dim)
  /// Scores become soft_cap * tanh(score / soft_cap) (Gemma 2, 2024). 0: they stay as they are.
  double soft_cap = 0;
  BlockLayout layout{};  ///< The blocks of keys that are attended to.

  double score_scale() const { return scale > 0 ? scale : 1.0 / std::sqrt(static_cast<double>(head_dim)); }

  /// Returns whether a query's block of keys is present. The key counts from key_begin.
  constexpr bool has_block(std::int64_t query, std::int64_t key) const {
    return layout.has(key_begin + first_query + query, key_begin + key);
  }
  constexpr std::int64_t key_count() const { return keys > 0 ? keys : tokens; }
  constexpr std::int64_t o_row() const { return heads * head_dim; }
  constexpr std::int64_t q_row() const { return row > 0 ? row : heads * head_dim; }
  constexpr std::int64_t kv_row() const { return row > 0 ? row : kv_heads * head_dim; }

  // Where a token's part of a head begins, in elements: in o and its gradient; in q and its; in k, v and
  // theirs.
  constexpr std::int64_t o_at(std::int64_t token, std::int64_t head) const {
    return token * o_row() + head * head_dim;
  }
  constexpr std::int64_t q_at(std::int64_t token, std::int64_t head) const {
    return token * q_row() + head * head_dim;
  }
  constexpr std::int64_t kv_at(std::int64_t token, std::int64_t kv_head) const {
    return token * kv_row() + kv_head * head_dim;
  }

  bool operator==(const AttentionShape&) const = default;
};

}  // namespace ztrain
