// Flat ranges as boxes, against counting.
#include "checkpoint/format/format.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace ztrain::checkpoint::checkpoint_selection_test {
namespace {

/// Row-major indices of the boxes' elements, in the boxes' order.
std::vector<std::int64_t> elements_of(const Shape& shape, const std::vector<Box>& boxes) {
  std::vector<std::int64_t> found;
  for (const Box& box : boxes)
    for (std::int64_t k = 0; k < elements(box.count); ++k) {
      std::int64_t rest = k, index = 0, stride = 1;
      for (std::size_t d = shape.size(); d-- > 0;) {
        index += (box.start[d] + rest % box.count[d]) * stride;
        rest /= box.count[d];
        stride *= shape[d];
      }
      found.push_back(index);
    }
  return found;
}

TEST(Selection, RangesAreFewBoxesInOrder) {
  for (const Shape& shape : {Shape{7}, Shape{5, 4}, Shape{3, 4, 5}, Shape{2, 3, 2, 3}, Shape{1, 6, 1}}) {
    const std::int64_t n = elements(shape);
    for (std::int64_t begin = 0; begin <= n; ++begin)
      for (std::int64_t end = begin; end <= n; ++end) {
        const auto boxes = boxes_of_range(shape, begin, end);
        EXPECT_LE(boxes.size(), 2 * shape.size() - 1);
        std::vector<std::int64_t> expected(static_cast<std::size_t>(end - begin));
        std::iota(expected.begin(), expected.end(), begin);
        ASSERT_EQ(elements_of(shape, boxes), expected) << to_string(shape) << " " << begin << " " << end;
      }
  }
}

TEST(Selection, AScalarIsOneElement) {
  EXPECT_EQ(boxes_of_range({}, 0, 1), (std::vector<Box>{{{0}, {1}}}));
}

TEST(Selection, SlicesAreWhereTheLayoutSaysTheyAre) {
  const Shape shape{4, 6, 2};
  for (int dim = 0; dim < 3; ++dim) {
    const Layout layout({{"w", shape, {dim, 2}, 0, true}}, {{1}});
    const std::int64_t slice = elements(shape) / 2;
    for (int index = 0; index < 2; ++index)
      for (std::int64_t begin = 0; begin <= slice; ++begin)
        for (std::int64_t end = begin; end <= slice; ++end) {
          std::vector<std::int64_t> expected;
          for (const LogicalRun& run : layout.logical_runs(0, index, begin, end - begin))
            for (std::int64_t k = 0; k < run.count; ++k) expected.push_back(run.logical_begin + k);
          ASSERT_EQ(elements_of(shape, boxes_of_slice(shape, {dim, 2}, index, begin, end)), expected);
        }
  }
}

}  // namespace
}  // namespace ztrain::checkpoint::checkpoint_selection_test
