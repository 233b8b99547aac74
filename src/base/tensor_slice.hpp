#pragma once
// Says how a dim of a tensor is cut over the ranks of the `tensor` axis. Families declare it for their
// parameters; layout, checkpoints and optimizers read it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/shape.hpp"

namespace ztrain {

/// A cut along dim into parts, one for each rank of the axis. With dim -1 every rank holds the tensor whole.
/// Parts are equal unless `begins` gives their ascending begins and then their end: parts + 1 elements.
struct TensorSlice {
  int dim = -1;
  int parts = 1;
  std::vector<std::int64_t> begins{};

  bool whole() const { return dim < 0; }
  /// Returns where part `index` of a dim of `size` elements begins. For index = parts, returns where the last
  /// one ends.
  std::int64_t begin(std::int64_t size, int index) const {
    return begins.empty() ? size / parts * index : begins[static_cast<std::size_t>(index)];
  }
  /// Returns the shape of one part of a tensor of this shape.
  Shape part_of(Shape shape, int index) const {
    if (whole()) return shape;
    std::int64_t& size = shape[static_cast<std::size_t>(dim)];
    size = begin(size, index + 1) - begin(size, index);
    return shape;
  }
  /// Returns the shape of the largest part.
  Shape largest_part_of(const Shape& shape) const {
    Shape largest = part_of(shape, 0);
    for (int i = 1; i < parts; ++i) largest = std::max(largest, part_of(shape, i));
    return largest;
  }
  bool operator==(const TensorSlice&) const = default;
};

}  // namespace ztrain
