#pragma once
// How the light kernels are launched: one functor call per row, or per quantum of 256 elements. Included by
// kernel sources only. The functor's inner loop is what a team of threads would share on a GPU; on the CPU it
// is the loop that the compiler vectorises, so it belongs in a function with __restrict parameters.

#include <cstdint>

#include "base/dtype.hpp"
#include "base/shape.hpp"
#include "base/view.hpp"
#include "kernels/exec_kokkos.hpp"

namespace ztrain::kernels {

/// Element-wise results and norm partials do not depend on where a slice begins as long as it begins on a
/// multiple of this many elements, and ends on one or at the end of the array: each quantum is computed
/// alone, by the same code.
inline constexpr std::int64_t quantum = 256;

/// functor(row) for each row in [0, rows); rows are independent.
template <class RowFunctor>
void for_rows(Exec& exec, std::int64_t rows, const RowFunctor& functor) {
  using Policy = Kokkos::RangePolicy<Kokkos::DefaultExecutionSpace, Kokkos::IndexType<std::int64_t>>;
  if (rows > 0) Kokkos::parallel_for(Policy(exec.space, 0, rows), functor);
}

/// functor(begin, length) for consecutive blocks of `block` elements; only the last one may be shorter. The
/// length of a full block is a constant to the compiler.
template <std::int64_t block = quantum, class BlockFunctor>
void for_blocks(Exec& exec, std::int64_t count, const BlockFunctor& functor) {
  for_rows(
      exec, ceil_div(count, block), KOKKOS_LAMBDA(const std::int64_t index) {
        const std::int64_t begin = index * block;
        if (begin + block <= count) {
          functor(begin, block);
        } else {
          functor(begin, count - begin);
        }
      });
}

template <class T>
KOKKOS_INLINE_FUNCTION acc_t<T> load(T value) {
  return static_cast<acc_t<T>>(value);
}

}  // namespace ztrain::kernels
