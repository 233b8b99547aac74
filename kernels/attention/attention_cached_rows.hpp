#pragma once
// Attention over a cache, one new token at a time. Included by kernel sources only.

#include "kernels/attention/attention_cached.hpp"
#include "kernels/launch/exec_kokkos.hpp"

namespace ztrain::kernels {

/// What both ways of going over a cache take.
template <class T>
struct CachedArguments {
  AttentionShape shape;
  std::int64_t capacity;
  acc_t<T> scale;
  const T* q;
  const T* k;
  const T* v;
  const std::int32_t* begin;
  T* o;

  /// The row of a token, and the first row that it sees.
  std::int64_t row_of(std::int64_t token) const { return *begin + token; }
  std::int64_t first_row(std::int64_t row) const {
    return shape.window > 0 && row >= shape.window ? row - shape.window + 1 : 0;
  }
};

/// Every token streams the rows that it sees, each row once for the query heads that share it: the way for
/// few tokens, where the cache's bytes are what takes time.
template <class T>
void attend_rows(Exec& exec, const CachedArguments<T>& a);

}  // namespace ztrain::kernels
