#pragma once
// Serial float64 GeGLU.

#include <cmath>

namespace ztrain::kernels::reference {

inline double geglu(double gate, double up) {
  const double inner = std::sqrt(2 / std::acos(-1.0)) * (gate + 0.044715 * std::pow(gate, 3));
  return 0.5 * gate * (1 + std::tanh(inner)) * up;
}

}  // namespace ztrain::kernels::reference
