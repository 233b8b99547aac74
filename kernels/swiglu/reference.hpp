#pragma once
// Serial float64 SwiGLU, forward and backward.

#include <cmath>
#include <cstddef>
#include <vector>

namespace ztrain::kernels::reference {

inline std::vector<double> swiglu_forward(const std::vector<double>& gate, const std::vector<double>& up) {
  std::vector<double> y(gate.size());
  for (std::size_t i = 0; i < gate.size(); ++i) y[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  return y;
}

struct SwigluGradients {
  std::vector<double> dgate, dup;
};

inline SwigluGradients swiglu_backward(const std::vector<double>& gate, const std::vector<double>& up,
                                       const std::vector<double>& dy) {
  SwigluGradients result{std::vector<double>(gate.size()), std::vector<double>(gate.size())};
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double sigmoid = 1 / (1 + std::exp(-gate[i]));
    result.dgate[i] = dy[i] * up[i] * (sigmoid + gate[i] * sigmoid * (1 - sigmoid));
    result.dup[i] = dy[i] * gate[i] * sigmoid;
  }
  return result;
}

}  // namespace ztrain::kernels::reference
