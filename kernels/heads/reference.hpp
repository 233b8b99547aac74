#pragma once
// Serial float64 moves of columns of heads, element by element.

#include <cstdint>
#include <vector>

namespace ztrain::kernels::reference {

/// A matrix of rows of heads; a shared one has one head in each row.
struct HeadMatrix {
  std::vector<double> values;
  std::int64_t width = 0;  ///< columns of a head
  bool shared = false;
  double& at(std::int64_t row, std::int64_t head, std::int64_t heads, std::int64_t column) {
    const std::int64_t index = shared ? row : row * heads + head;
    return values[static_cast<std::size_t>(index * width + column)];
  }
};

/// Adds the moved columns to outputs, which are zeros of the sizes that are wanted. Parts is HeadParts of
/// kernels/heads/record.hpp.
template <class Parts>
void head_parts(const Parts& parts, std::int64_t rows, std::vector<HeadMatrix> inputs,
                std::vector<HeadMatrix>& outputs) {
  for (const auto& move : parts.moves)
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t head = 0; head < parts.heads; ++head)
        for (std::int64_t c = 0; c < move.count; ++c)
          outputs[static_cast<std::size_t>(move.output)].at(row, head, parts.heads, move.to + c) +=
              inputs[static_cast<std::size_t>(move.input)].at(row, head, parts.heads, move.from + c);
}

}  // namespace ztrain::kernels::reference
