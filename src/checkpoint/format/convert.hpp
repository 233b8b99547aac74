#pragma once
// Converts elements from one floating type to another, by way of fp32, because "model" may be loaded in
// another precision than it was saved in. Rounds to nearest even; a value that a type cannot hold becomes its
// infinity.

#include <cstddef>
#include <cstdint>

#include "base/dtype.hpp"

namespace ztrain::checkpoint {

/// Returns whether convert() goes from one to the other: any type to itself, and those listed in convert.cpp.
bool converts(DType from, DType to);

/// Converts `count` elements, at any alignment, between two types that convert.
void convert(const std::byte* from, DType from_type, std::byte* to, DType to_type, std::int64_t count);

/// Returns whether none of `count` elements, at any alignment, is NaN or infinite. Integers never are.
bool all_finite(const std::byte* data, DType dtype, std::int64_t count);

inline constexpr std::int64_t mxfp4_block = 32;  ///< elements of MXFP4 that share a scale

/// Decodes elements [begin, begin + count) of the MXFP4 type of the Open Compute Project's Microscaling
/// Formats specification (2023). Two 4-bit floats are in a byte, the first in its lower half. `codes` begins
/// at the block of element `begin`, and so do `scales`, which are exponents of 2 with a bias of 127. 255
/// stands for NaN.
void decode_mxfp4(const std::byte* codes, const std::byte* scales, std::int64_t begin, std::int64_t count,
                  float* to);

}  // namespace ztrain::checkpoint
