#pragma once
// How a dim of a tensor is cut over the ranks of the `tensor` axis: what families say of their parameters,
// and what layout, checkpoints and optimizers read.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/shape.hpp"

namespace ztrain {

/// Cut along dim into parts, one for each rank of the axis; dim -1: every rank holds the tensor whole. Parts
/// are equal unless `begins` says where each begins, and last where they end: parts + 1 elements, ascending.
struct TensorSlice {
  int dim = -1;
  int parts = 1;
  std::vector<std::int64_t> begins{};

  bool whole() const { return dim < 0; }
  /// Where part `index` of a dim of `size` elements begins; index = parts: where the last one ends.
  std::int64_t begin(std::int64_t size, int index) const {
    return begins.empty() ? size / parts * index : begins[static_cast<std::size_t>(index)];
  }
  /// The shape of one part of a tensor of this shape.
  Shape part_of(Shape shape, int index) const {
    if (whole()) return shape;
    std::int64_t& size = shape[static_cast<std::size_t>(dim)];
    size = begin(size, index + 1) - begin(size, index);
    return shape;
  }
  /// The shape of a part that no other exceeds.
  Shape largest_part_of(const Shape& shape) const {
    Shape largest = part_of(shape, 0);
    for (int i = 1; i < parts; ++i) largest = std::max(largest, part_of(shape, i));
    return largest;
  }
  bool operator==(const TensorSlice&) const = default;
};

}  // namespace ztrain
