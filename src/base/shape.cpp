#include "base/shape.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ztrain {

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace ztrain
