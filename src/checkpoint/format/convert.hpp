#pragma once
// Elements from one floating type to another, by way of fp32: "model" may be loaded in another precision than
// it was saved in. To nearest even; what a type cannot hold becomes its infinity.

#include <cstddef>
#include <cstdint>

#include "base/dtype.hpp"

namespace ztrain::checkpoint {

/// Whether convert() goes from one to the other. Any type converts to itself; besides those listed in
/// convert.cpp.
bool converts(DType from, DType to);

/// `count` elements, at any alignment, between two types that convert.
void convert(const std::byte* from, DType from_type, std::byte* to, DType to_type, std::int64_t count);

/// Whether none of `count` elements, at any alignment, is NaN or infinite. Integers never are.
bool all_finite(const std::byte* data, DType dtype, std::int64_t count);

}  // namespace ztrain::checkpoint
