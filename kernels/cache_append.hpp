#pragma once
// New rows at the end of a cache that lives from one Program to the next.

#include <cstdint>

#include "base/dtype.hpp"
#include "base/view.hpp"
#include "kernels/exec.hpp"

namespace ztrain::kernels {

/// rows: [T, width]; begin: [1], on the device; cache: [capacity, width]. Row i of rows becomes row
/// begin[0] + i of the cache; rows that would lie outside the cache are dropped, the others of the cache stay
/// as they were. T in {float, bf16, f16, double}. Throws Error when the widths differ.
template <class T>
void cache_append(Exec& exec, Matrix<const T> rows, Vector<const std::int32_t> begin, Matrix<T> cache);

}  // namespace ztrain::kernels
