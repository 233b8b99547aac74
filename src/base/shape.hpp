#pragma once
// Tensor shapes (dims, outermost first), how they are cut over the ranks of some axes, and indices.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "base/axes.hpp"

namespace ztrain {

using Shape = std::vector<std::int64_t>;

/// Returns the product of the dims; 1 for a scalar.
inline std::int64_t elements(const Shape& shape) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) n *= d;
  return n;
}

/// Returns text such as "[4, 128]".
inline std::string to_string(const Shape& shape) {
  std::string text;
  for (const std::int64_t d : shape) text += (text.empty() ? "" : ", ") + std::to_string(d);
  return "[" + text + "]";
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return ceil_div(a, b) * b;
}

/// Returns an id, count or enumerator that is known not to be negative as an index of a container.
template <class Id>
requires(std::is_integral_v<Id> || std::is_enum_v<Id>) constexpr std::size_t at(Id id) {
  return static_cast<std::size_t>(id);
}

/// Says how a tensor is cut along dim into parts, one for each rank of `axes`. Families declare the cuts of
/// their parameters; layout, checkpoints and optimizers read them. With dim -1 every rank holds the tensor
/// whole. Parts are equal unless `begins` gives their ascending begins and then their end: parts + 1
/// elements.
struct TensorSlice {
  int dim = -1;
  int parts = 1;
  std::vector<std::int64_t> begins{};
  AxisSet axes = Axis::tensor;

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
