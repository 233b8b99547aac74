#pragma once
// Which keys the queries of a block see: what the blockwise attention of CPUs skips and masks. Included by
// kernel sources only.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/attention/attention_arguments.hpp"
#include "kernels/launch/tile.hpp"

namespace ztrain::kernels {

/// Queries, and keys, of a tile.
inline constexpr int attention_block = 64;
namespace attention_blocks {
constexpr int block = attention_block;
}

/// Where the block of keys that begins here ends: blocks of keys end where blocks of queries begin.
inline std::int64_t end_of_keys_block(const AttentionShape& s, std::int64_t begin, std::int64_t keys_end) {
  const std::int64_t before =
      attention_block - s.first_query % attention_block;  // keys before a block of queries
  return std::min(keys_end, begin + attention_block - (begin + before) % attention_block);
}

/// The first key of each query of a block. Queries beyond the last token see nothing.
struct FirstKeys {
  alignas(64) std::int32_t at[attention_block];

  template <class T>
  void set(const AttentionArguments<T>& a, std::int64_t q0) {
    for (int j = 0; j < attention_block; ++j)
      at[j] = q0 + j < a.shape.tokens
                  ? static_cast<std::int32_t>(first_key(a.shape, a.document_start, q0 + j))
                  : std::numeric_limits<std::int32_t>::max();
  }
};

/// Which of the keys k0 .. k0 + keys the queries that are keys q0 .. q0 + attention_block themselves see:
/// those from their first one, which does not decrease from query to query, to themselves.
struct Seen {
  const FirstKeys& first;
  std::int32_t q0, k0;
  int keys;

  bool all() const { return k0 + keys <= q0 + 1 && first.at[attention_block - 1] <= k0; }
  bool none() const { return k0 >= q0 + attention_block || first.at[0] >= k0 + keys; }

  /// Queries that see any of the keys i .. i + n.
  tile::Span queries_of(int i, int n) const {
    const auto* const last = first.at + attention_block - 1;  // which mostly sees them
    const auto* const after = *last < k0 + i + n ? last + 1 : std::lower_bound(first.at, last, k0 + i + n);
    const int end = static_cast<int>(after - first.at);
    return {std::clamp(k0 + i - q0, 0, end), end};
  }
  /// Keys that any of the queries i .. i + n sees.
  tile::Span keys_of(int i, int n) const {
    const int end = std::clamp(q0 + i + n - k0, 0, keys);
    return {std::min(std::max(first.at[i], k0) - k0, end), end};
  }
};

/// Returns the first key of the first tile, from key `begin` to `end`, that the queries' layout has.
inline std::int64_t first_present(const AttentionShape& s, std::int64_t q0, std::int64_t begin,
                                  std::int64_t end) {
  while (begin < end && !s.has_block(q0, begin)) begin = end_of_keys_block(s, begin, end);
  return begin;
}

/// Columns of a tile that begin on whole packs.
inline tile::Span whole_packs(tile::Span columns) {
  return {columns.begin / tile::column_quantum * tile::column_quantum, columns.end};
}

/// Rows that are asked for ahead of their use with each strip of a product: enough for all that a step reads
/// and writes.
inline constexpr int ahead_rows = 4;

}  // namespace ztrain::kernels
