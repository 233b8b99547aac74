#include "base/dtype.hpp"

#include <array>
#include <utility>

#include "base/error.hpp"

namespace ztrain {
namespace {
constexpr std::array<std::pair<DType, std::string_view>, 9> names{{{DType::f64, "fp64"},
                                                                   {DType::f32, "fp32"},
                                                                   {DType::bf16, "bf16"},
                                                                   {DType::f16, "fp16"},
                                                                   {DType::i64, "int64"},
                                                                   {DType::i32, "int32"},
                                                                   {DType::u8, "uint8"},
                                                                   {DType::f8e4m3, "fp8_e4m3"},
                                                                   {DType::f8e5m2, "fp8_e5m2"}}};
}

std::string_view name_of(DType type) {
  for (const auto& [t, name] : names)
    if (t == type) return name;
  return "?";
}

DType dtype_from(std::string_view name) {
  for (const auto& [t, n] : names)
    if (n == name) return t;
  fail("'{}' is not an element type; legal: fp64, fp32, bf16, fp16, int64, int32, uint8, fp8_e4m3, fp8_e5m2",
       name);
}

}  // namespace ztrain
