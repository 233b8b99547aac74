#include "engine/inspector.hpp"

#include <fmt/format.h>

#include <cmath>

#include "program/loops/repeat.hpp"

namespace ztrain::engine {
namespace {

using program::Category;

/// Index of the first value that is not finite; -1 for none.
template <class T>
std::int64_t first_not_finite(const std::byte* data, std::int64_t count, bool bounds) {
  const T* values = reinterpret_cast<const T*>(data);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(static_cast<float>(values[i]));
    // Masks and logarithms of nothing are minus infinity and may be.
    if (std::isnan(value) || (std::isinf(value) && (value > 0 || !bounds))) return i;
  }
  return -1;
}

std::int64_t first_not_finite(const program::Tensor& tensor, const std::byte* data) {
  const std::int64_t count = elements(tensor.shape);
  const bool bounds = tensor.category == Category::activation;
  switch (tensor.dtype) {
    case DType::f32:
      return first_not_finite<float>(data, count, bounds);
    case DType::bf16:
      return first_not_finite<bf16>(data, count, bounds);
    case DType::f16:
      return first_not_finite<f16>(data, count, bounds);
    default:
      return -1;
  }
}

/// What holds numbers of the model: not scratch memory, of which an op may use a part.
bool is_of_model(const program::Tensor& tensor) {
  return tensor.tier == program::Tier::device && tensor.category != Category::workspace &&
         tensor.category != Category::input && tensor.category != Category::scalar;
}

}  // namespace

Inspector::Inspector(const program::Program& program, const JobMemory& memory)
    : step_(unrolled(program)), memory_(memory) {}

void Inspector::look_before(program::OpId issue) {
  look(issue, step_.op(issue).inputs, "it was given");
}

void Inspector::look_after(program::OpId issue) {
  look(issue, step_.op(issue).outputs, "its result");
}

void Inspector::look(program::OpId issue, const std::vector<program::TensorId>& tensors, const char* what) {
  if (step_.op(issue).communicates()) return;
  for (const program::TensorId id : tensors) {
    const program::Tensor& tensor = step_.tensor(id);
    if (found_ || !is_of_model(tensor)) continue;
    const std::int64_t at = first_not_finite(tensor, memory_.address(step_, id));
    if (at >= 0)
      found_ = {issue, fmt::format("{}: {} {} is not finite (the first at element {} of {})",
                                   describe(step_, issue), what, tensor.name, at, elements(tensor.shape))};
  }
}

}  // namespace ztrain::engine
