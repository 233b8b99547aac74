#pragma once
// The sum that reductions form: over the members of a group, in rank order, always with the same rounding.

#include <cstdint>

#include "base/dtype.hpp"

namespace ztrain::runtime {

/// out[i] (+)= sources[0][i] + sources[1][i] + ..., count elements each, added from left to right in fp32
/// (fp64 for fp64 sources) and rounded once to out's type. out may be one of the sources, but not overlap
/// them otherwise.
using RankSum = void (*)(const void* const* sources, int ranks, void* out, std::int64_t count);

/// in and out: fp32, bf16 or fp64, or fp16 to fp16 or fp32, or fp32 to fp16; throws Error for others. With
/// accumulate the sum is added to what out holds.
RankSum rank_sum(DType in, DType out, bool accumulate);

}  // namespace ztrain::runtime
