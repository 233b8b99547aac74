#pragma once
// Attention over a cache, one query at a time: on a GPU the warps of a team share its keys. The way of GPUs,
// and on CPUs what the others are compared with.

#include "kernels/attention/attention_cached.hpp"

namespace ztrain::kernels {

/// As attention_cached, on any processor. T is float, bf16, f16 or double.
template <class T>
void attention_cached_plain(Exec& exec, const CachedAttentionInput<T>& input, Matrix<T> o);

}  // namespace ztrain::kernels
