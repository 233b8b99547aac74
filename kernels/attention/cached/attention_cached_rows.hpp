#pragma once
// Attention over a cache, one new token at a time. Included by kernel sources only.

#include <algorithm>

#include "kernels/attention/attention_arguments.hpp"
#include "kernels/launch/rows.hpp"

namespace ztrain::kernels {

/// Rows of the cache that a tile holds at most.
inline constexpr int cached_tile = 64;

/// Returns the number of rows of the tile that begins at row `begin`. Tiles of a layout lie within its
/// blocks.
template <class T>
int rows_of_tile(const CachedArguments<T>& a, std::int64_t begin, std::int64_t end) {
  const std::int64_t within = a.shape.layout.is_on() ? begin % cached_tile : 0;
  return static_cast<int>(std::min(cached_tile - within, end - begin));
}

/// Every token streams the rows that it sees, each row once for the query heads that share it: the way for
/// few tokens, where the cache's bytes are what takes time.
template <class T>
void attend_rows(Exec& exec, const CachedArguments<T>& a);

}  // namespace ztrain::kernels
