#pragma once
// Attention over a cache, one new token at a time. Included by kernel sources only.

#include "kernels/attention/attention_arguments.hpp"
#include "kernels/launch/rows.hpp"

namespace ztrain::kernels {

/// Every token streams the rows that it sees, each row once for the query heads that share it: the way for
/// few tokens, where the cache's bytes are what takes time.
template <class T>
void attend_rows(Exec& exec, const CachedArguments<T>& a);

}  // namespace ztrain::kernels
