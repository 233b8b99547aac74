#pragma once
// Copies columns of heads from matrices to other matrices, and sums them over heads. T in {float, bf16, f16,
// double}.

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// Columns of a head of an input that become columns of that head of the output.
struct HeadColumns {
  std::int64_t input = 0, from = 0, to = 0, count = 0;
};

/// The columns of each head of one output, from the first to the last.
struct HeadLayout {
  static constexpr std::int64_t most = 7;
  struct Piece {
    std::int32_t input = -1;  ///< -1: zeros
    std::int32_t from = 0, to = 0, count = 0;
  };
  Piece pieces[most] = {};
  std::int32_t count = 0;
};

/// Returns the layout of an output whose heads have `width` columns. input_widths: columns of a head of each
/// input. Throws Error if moves overlap, leave their operands, or are more than a layout holds.
HeadLayout head_layout(std::vector<HeadColumns> moves, std::int64_t width,
                       const std::array<std::int64_t, 2>& input_widths);

/// Returns the layout of one output. Parts: HeadParts, of kernels/heads/record.hpp.
template <class Parts>
HeadLayout head_layout(const Parts& parts, std::int64_t output, std::int64_t width,
                       const std::array<std::int64_t, 2>& input_widths) {
  std::vector<HeadColumns> moves;
  for (const auto& move : parts.moves)
    if (move.output == output) moves.push_back({move.input, move.from, move.to, move.count});
  return head_layout(std::move(moves), width, input_widths);
}

/// An input. row and head count the elements from one row or head to the next. head = 0: all heads read the
/// same columns.
template <class T>
struct HeadOperand {
  T* data = nullptr;
  std::int64_t row = 0, head = 0;
};
template <class T>
struct HeadInputs {
  HeadOperand<const T> at[2] = {};
};

/// Writes each of `heads` heads of y [rows, heads * width].
template <class T>
void head_parts(Exec& exec, const HeadInputs<T>& inputs, const HeadLayout& layout, std::int64_t heads,
                Matrix<T> y);

/// Writes y [rows, width], the sum over the heads, added in their order in acc_t<T> and rounded once.
template <class T>
void head_parts_sum(Exec& exec, const HeadInputs<T>& inputs, const HeadLayout& layout, std::int64_t heads,
                    Matrix<T> y);

}  // namespace ztrain::kernels
