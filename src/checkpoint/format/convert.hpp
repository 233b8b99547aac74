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

}  // namespace ztrain::checkpoint
