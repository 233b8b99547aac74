#include "base/shape.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ztrain {

std::int64_t elements(const Shape& shape) {
  std::int64_t n = 1;
  for (auto d : shape) n *= d;
  return n;
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace ztrain
