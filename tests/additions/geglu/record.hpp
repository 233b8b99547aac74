#pragma once
// An op added out of tree, as an example: GeGLU, y = gelu(gate) * up (Shazeer, "GLU variants improve
// transformer", 2020), which ztrain itself computes by gated_activation. CONTRIBUTING tells how each file
// of this folder is made.

#include <string_view>

#include "kernels/record.hpp"

namespace ztrain {

/// gate [T, n], up [T, n] -> y [T, n].
struct Geglu : NoConstants {
  static constexpr std::string_view op = "geglu";
  enum In : std::size_t { gate, up };
  enum Out : std::size_t { y };
  static constexpr Count reads = 2, writes = 1;
};
/// gate, up, dy -> dgate, dup.
struct GegluGrad : NoConstants {
  static constexpr std::string_view op = "geglu_grad";
  enum In : std::size_t { gate, up, dy };
  enum Out : std::size_t { dgate, dup };
  static constexpr Count reads = 3, writes = 2;
};

}  // namespace ztrain
