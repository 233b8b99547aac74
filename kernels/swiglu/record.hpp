#pragma once
// The gated activation silu(gate) * up.

#include <string_view>

#include "kernels/record.hpp"

namespace ztrain {

/// gate [T, n], up [T, n] -> y [T, n], or gate_up [T, 2n] -> y.
struct Swiglu : NoConstants {
  static constexpr std::string_view op = "swiglu";
  enum In : std::size_t { gate, up };
  enum Out : std::size_t { y };
  static constexpr Count reads{1, 2}, writes = 1;
};
/// gate, up, dy -> dgate, dup, or gate_up, dy -> dgate_up.
struct SwigluGrad : NoConstants {
  static constexpr std::string_view op = "swiglu_grad";
  /// The last of so many inputs.
  static constexpr std::size_t dy(std::size_t inputs) { return inputs - 1; }
  static constexpr Count reads{2, 3}, writes{1, 2};
};

}  // namespace ztrain
