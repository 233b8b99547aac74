#pragma once
// Tensor shapes: dims, outermost first.

#include <cstdint>
#include <string>
#include <vector>

namespace ztrain {

using Shape = std::vector<std::int64_t>;

/// Returns the product of the dims; 1 for a scalar.
inline std::int64_t elements(const Shape& shape) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) n *= d;
  return n;
}

/// Returns text such as "[4, 128]".
std::string to_string(const Shape& shape);

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return ceil_div(a, b) * b;
}

}  // namespace ztrain
