#pragma once
// Weights from their codes.

#include <cstdint>
#include <functional>

#include "kernel_interface/quantized_weights.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// A part of a weight as it is kept.
struct CodedWeight {
  WeightForm form;
  const std::uint8_t* codes = nullptr;  ///< from the quantum on in which element `begin` of the part lies
  const float* statistics = nullptr;    ///< of the whole weight
  std::int64_t statistics_count = 0;
  std::int64_t begin = 0;
  PartOfMatrix part;
};

/// Prepares y = level * scale for y.count elements of the part from `begin` on; the product is rounded to
/// fp32 and then to T. A nested scale is level * scale of its group + mean, each step rounded to fp32. T is
/// float, bf16, f16 or double.
template <class T>
std::function<void(Exec&)> make_dequantize(const CodedWeight& weight, Vector<T> y);

}  // namespace ztrain::kernels
