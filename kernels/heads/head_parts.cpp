#include "kernels/heads/head_parts.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "kernels/launch/instances.hpp"
#include "kernels/launch/pieces.hpp"

namespace ztrain::kernels {
namespace {

/// Columns that a lane takes on a CPU: a whole part of a head when it copies, and columns_of_sum when it
/// sums. A lane of a GPU takes a pack.
constexpr std::int64_t all_columns = std::int64_t{1} << 30, columns_of_sum = 64;

/// Calls f(piece, head, first column, columns) for the columns of a piece of the layout, `step` at a time.
template <class F>
KOKKOS_INLINE_FUNCTION void each_part(const Lanes& lanes, const HeadLayout& layout, std::int64_t heads,
                                      std::int64_t step, const F& f) {
  for (std::int32_t i = 0; i < layout.count; ++i) {
    const HeadLayout::Piece& piece = layout.pieces[i];
    const int steps = static_cast<int>((piece.count + step - 1) / step);
    lanes.items(static_cast<int>(heads) * steps, [&](const int item) {
      const std::int64_t begin = item % steps * step, left = piece.count - begin;
      f(piece, item / steps, begin, step < left ? step : left);
    });
  }
}

}  // namespace

HeadLayout head_layout(std::vector<HeadColumns> moves, std::int64_t width,
                       const std::array<std::int64_t, 2>& input_widths) {
  std::ranges::sort(moves, {}, &HeadColumns::to);
  HeadLayout layout;
  std::int64_t end = 0;
  const auto add = [&](std::int64_t input, std::int64_t from, std::int64_t to, std::int64_t count) {
    if (count == 0) return;
    REQUIRE(layout.count < HeadLayout::most, "head_parts: a head of more than {} parts", HeadLayout::most);
    const auto narrow = [](std::int64_t n) { return static_cast<std::int32_t>(n); };
    layout.pieces[layout.count++] = {narrow(input), narrow(from), narrow(to), narrow(count)};
  };
  for (const HeadColumns& m : moves) {
    const bool known = m.input >= 0 && m.input < std::ssize(input_widths);
    REQUIRE(known && m.to >= end && m.from >= 0 && m.count > 0 && m.to + m.count <= width &&
                m.from + m.count <= input_widths[static_cast<std::size_t>(m.input)],
            "head_parts: columns {} to {} of input {} cannot become columns {} to {} of a head of {}", m.from,
            m.from + m.count, m.input, m.to, m.to + m.count, width);
    add(-1, 0, end, m.to - end);
    add(m.input, m.from, m.to, m.count);
    end = m.to + m.count;
  }
  add(-1, 0, end, width - end);
  return layout;
}

template <class T>
void head_parts(Exec& exec, const HeadInputs<T>& inputs, const HeadLayout& layout, std::int64_t heads,
                Matrix<T> y) {
  REQUIRE(heads > 0 && y.cols % heads == 0, "head_parts: {} columns for {} heads", y.cols, heads);
  const HeadInputs<T> from = inputs;
  const HeadLayout how = layout;
  const std::int64_t width = y.cols / heads, count = heads;
  for_wide_rows(
      exec, y.rows, y.cols, KOKKOS_LAMBDA(const Lanes& lanes, const std::int64_t row) {
        each_part(lanes, how, count, on_gpu ? pack : all_columns,
                  [&](const HeadLayout::Piece& piece, std::int64_t head, std::int64_t begin, std::int64_t n) {
                    T* const to = y.data + row * y.cols + head * width + piece.to + begin;
                    if (piece.input < 0) return RowPiece{0, n}.fill_zero(to);
                    const auto& x = from.at[piece.input];
                    RowPiece{0, n}.copy(x.data + row * x.row + head * x.head + piece.from + begin, to);
                  });
      });
}

template <class T>
void head_parts_sum(Exec& exec, const HeadInputs<T>& inputs, const HeadLayout& layout, std::int64_t heads,
                    Matrix<T> y) {
  const HeadInputs<T> from = inputs;
  const HeadLayout how = layout;
  const std::int64_t count = heads;
  constexpr std::int64_t step = on_gpu ? pack : columns_of_sum;
  for_wide_rows(
      exec, y.rows, y.cols, KOKKOS_LAMBDA(const Lanes& lanes, const std::int64_t row) {
        each_part(lanes, how, 1, step,
                  [&](const HeadLayout::Piece& piece, std::int64_t, std::int64_t begin, std::int64_t n) {
                    acc_t<T> sums[step] = {};
                    for (std::int64_t head = 0; piece.input >= 0 && head < count; ++head) {
                      const auto& x = from.at[piece.input];
                      const T* const part = x.data + row * x.row + head * x.head + piece.from + begin;
                      for (std::int64_t i = 0; i < n; ++i) sums[i] += load(part[i]);
                    }
                    T* const to = y.data + row * y.cols + piece.to + begin;
                    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(sums[i]);
                  });
      });
}

ZTRAIN_INSTANCES(head_parts)
ZTRAIN_INSTANCES(head_parts_sum)

}  // namespace ztrain::kernels
