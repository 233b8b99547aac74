#pragma once
// Causal grouped-query attention of a few new tokens over a cache of the keys and values of all tokens so
// far, their own included. Blockwise with an online softmax, as attention.hpp; few tokens stream the cache
// through once per key-value head, which is what bounds them.

#include <cstdint>

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// T here and below is float, bf16, f16 or double.
template <class T>
struct CachedAttentionInput {
  AttentionShape shape;  ///< tokens: the new ones
  Matrix<const T> q;     ///< [tokens, heads * head_dim]
  Matrix<const T> k;     ///< [kv_heads * capacity, head_dim]
  Matrix<const T> v;     ///< [kv_heads * capacity, head_dim]
  /// [1], on the device: the cache's row of the first new token. Token i sees rows up to begin[0] + i.
  Vector<const std::int32_t> begin;
  Vector<const T> sinks{};  ///< [heads], a logit of each head's softmax that has no value; or none
};

/// Throws Error when the views do not have the shape's sizes. Called by attention_cached too; cheap.
template <class T>
void check_cached(const CachedAttentionInput<T>& input, Matrix<const T> o);

/// o: [tokens, heads * head_dim]. A token whose own row is not in the cache gets NaN; rows of the cache after
/// the last new token's are not read. A token's result does not depend on the values of rows that it does not
/// see, as long as they are finite.
template <class T>
void attention_cached(Exec& exec, const CachedAttentionInput<T>& input, Matrix<T> o);

/// New rows at the end of a cache. rows: [T, heads * head_dim]; begin: [1], on the device; cache: [heads *
/// capacity, head_dim], so that what a head has cached lies together. Row i of rows becomes row begin[0] + i
/// of each head; what would lie outside the cache is dropped, the rest of the cache stays as it was. Throws
/// Error when rows are not of whole heads, or the cache's heads not of the same capacity.
template <class T>
void cache_append(Exec& exec, Matrix<const T> rows, Vector<const std::int32_t> begin, Matrix<T> cache);

}  // namespace ztrain::kernels
