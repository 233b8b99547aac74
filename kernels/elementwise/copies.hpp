#pragma once
// Copies and fills device memory by kernels, which are ordered with the others on the same Exec.

#include <cstdint>

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// Copies bytes from src to dst; the ranges do not overlap.
void copy(Exec& exec, const void* src, void* dst, std::int64_t bytes);

/// Sets every byte to 0.
void zero(Exec& exec, void* dst, std::int64_t bytes);

/// Bytes that fill_poison sets together, and the most that it leaves between two of these.
inline constexpr std::int64_t poison_line = 64, poison_page = 4096;

/// Sets the first poison_line bytes of every `every` to 0xFF: NaN in every float type, so that a read of a
/// released range shows. every: a power of two from poison_line, which sets all of them, to poison_page.
void fill_poison(Exec& exec, void* dst, std::int64_t bytes, std::int64_t every = poison_line);

/// Exchanges the two outer dims of an array, so that what an exchange of columns for tokens sends lies
/// together. x: [outer, inner, n], y: [inner, outer, n]; n from the number of elements. T in {float, bf16,
/// f16, double}. Throws Error when sizes do not match.
template <class T>
void swap_blocks(Exec& exec, Vector<const T> x, std::int64_t outer, std::int64_t inner, Vector<T> y);

}  // namespace ztrain::kernels
