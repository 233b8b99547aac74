#pragma once
// Converts flat row-major ranges of a tensor to boxes, which HDF5 takes as selections.

#include <vector>

#include "base/shape.hpp"
#include "files/hdf5_file.hpp"
#include "layout/layout.hpp"

namespace ztrain::checkpoint {

/// Returns elements [begin, end) of a row-major tensor with N dims, as at most 2 N - 1 disjoint boxes in
/// row-major order. A scalar counts as one dim of extent 1.
std::vector<Box> boxes_of_range(const Shape& shape, std::int64_t begin, std::int64_t end);

/// Does the same for a range of the slice that tensor rank `index` holds, in coordinates of the whole tensor.
std::vector<Box> boxes_of_slice(const Shape& shape, const TensorSlice& slice, int index, std::int64_t begin,
                                std::int64_t end);

}  // namespace ztrain::checkpoint
