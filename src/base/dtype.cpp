#include "base/dtype.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/index.hpp"

namespace ztrain {
namespace {
/// In the order of DType.
constexpr std::array<std::string_view, 9> names{"fp64",  "fp32",  "bf16",     "fp16",    "int64",
                                                "int32", "uint8", "fp8_e4m3", "fp8_e5m2"};
}  // namespace

std::string_view name_of(DType type) {
  return names.at(at(type));
}

DType dtype_from(std::string_view name) {
  const auto* found = std::ranges::find(names, name);
  REQUIRE(found != names.end(), "'{}' is not an element type; legal: {}", name, fmt::join(names, ", "));
  return static_cast<DType>(found - names.begin());
}

}  // namespace ztrain
