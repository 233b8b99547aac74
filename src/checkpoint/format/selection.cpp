#include <fmt/format.h>

#include <charconv>

#include "checkpoint/format/format.hpp"

namespace ztrain::checkpoint {
namespace {

constexpr std::string_view copy_mark = ".copy";

/// Appends the boxes of [begin, end) within the sub-tensor of dims dim, dim + 1, ...; the indices before it
/// are fixed.
void append(const Shape& shape, std::size_t dim, Shape fixed, std::int64_t begin, std::int64_t end,
            std::vector<Box>& boxes) {
  if (begin >= end) return;
  std::int64_t inner = 1;
  for (std::size_t d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
  std::int64_t first = begin / inner;
  const std::int64_t last = end / inner, head = begin % inner, tail = end % inner;
  const auto within = [&](std::int64_t index, std::int64_t from, std::int64_t to) {
    Shape prefix = fixed;
    prefix.push_back(index);
    append(shape, dim + 1, std::move(prefix), from, to, boxes);
  };
  if (first == last) return within(first, head, tail);
  if (head > 0) within(first++, head, inner);
  if (first < last) {
    Box box{fixed, Shape(dim, 1)};
    box.start.push_back(first);
    box.count.push_back(last - first);
    for (std::size_t d = dim + 1; d < shape.size(); ++d) {
      box.start.push_back(0);
      box.count.push_back(shape[d]);
    }
    boxes.push_back(std::move(box));
  }
  if (tail > 0) within(last, 0, tail);
}

}  // namespace

std::vector<Box> boxes_of_range(const Shape& shape, std::int64_t begin, std::int64_t end) {
  std::vector<Box> boxes;
  append(shape.empty() ? Shape{1} : shape, 0, {}, begin, end, boxes);
  return boxes;
}

std::vector<Box> boxes_of_slice(const Shape& shape, const TensorSlice& slice, int index, std::int64_t begin,
                                std::int64_t end) {
  if (slice.whole()) return boxes_of_range(shape, begin, end);
  const auto dim = static_cast<std::size_t>(slice.dim);
  std::vector<Box> boxes = boxes_of_range(slice.part_of(shape, index), begin, end);
  for (Box& box : boxes) box.start[dim] += slice.begin(shape[dim], index);
  return boxes;
}

StoredForm stored_form(const ParameterEntry& parameter, std::int64_t granule, const TensorSlice& slice) {
  if (granule == 1) return {parameter.shape, slice};
  const auto items = [&](int index) {
    return ceil_div(elements(slice.part_of(parameter.shape, index)), granule);
  };
  if (slice.parts == 1) return {{items(0)}, {}};
  if (slice.begins.empty()) return {{slice.parts, items(0)}, {0, slice.parts}};
  std::vector<std::int64_t> begins{0};
  for (int index = 0; index < slice.parts; ++index) begins.push_back(begins.back() + items(index));
  return {{begins.back()}, {0, slice.parts, begins}};
}

std::string copy_name(const std::string& state, std::int64_t copy) {
  return fmt::format("{}{}{}", state, copy_mark, copy);
}

std::int64_t copy_in(const std::string& name) {
  const std::size_t mark = name.rfind(copy_mark);
  if (mark == name.npos) return -1;
  std::int64_t copy = -1;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + mark + copy_mark.size(), end, copy);
  return error == std::errc() && rest == end ? copy : -1;
}

TensorSlice slices_of(const ParameterEntry& parameter, const PieceRow& piece) {
  return {static_cast<int>(piece.tensor_dim), static_cast<int>(piece.tensor_parts), parameter.begins};
}

std::int64_t StoredForm::items_before(int index) const {
  if (slice.whole()) return index == 0 ? 0 : elements(shape);
  const auto dim = static_cast<std::size_t>(slice.dim);
  Shape before = shape;
  before[dim] = slice.begin(shape[dim], index);
  return elements(before);
}

}  // namespace ztrain::checkpoint
