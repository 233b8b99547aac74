#pragma once
// New rows at the end of a cache that lives from one Program to the next.

#include <cstdint>

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// rows: [T, heads * head_dim]; begin: [1], on the device; cache: [heads * capacity, head_dim], so that what
/// a head has cached lies together. Row i of rows becomes row begin[0] + i of each head; what would lie
/// outside the cache is dropped, the rest of the cache stays as it was. T in {float, bf16, f16, double}.
/// Throws Error when rows are not of whole heads, or the cache's heads not of the same capacity.
template <class T>
void cache_append(Exec& exec, Matrix<const T> rows, Vector<const std::int32_t> begin, Matrix<T> cache);

}  // namespace ztrain::kernels
