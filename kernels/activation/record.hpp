#pragma once
// Activations of feed-forwards: gated, y = f(gate) * up, or plain, y = f(x).

#include <string>
#include <string_view>

#include "kernels/record.hpp"

namespace ztrain {

/// gate [T, n], up [T, n] -> y [T, n], or gate_up [T, 2n] -> y.
struct GatedActivation {
  static constexpr std::string_view op = "gated_activation";
  enum In : std::size_t { gate, up };
  enum Out : std::size_t { y };
  static constexpr Count reads{1, 2}, writes = 1;
  std::string activation = "silu";  ///< a name of kernels/activation/activation.hpp
  static constexpr auto fields() { return std::tuple{Unusual{"activation", &GatedActivation::activation}}; }
};
/// gate, up, dy -> dgate, dup, or gate_up, dy -> dgate_up.
struct GatedActivationGrad : GatedActivation {
  static constexpr std::string_view op = "gated_activation_grad";
  /// Returns the index of dy, which is the last of `inputs` inputs.
  static constexpr std::size_t dy(std::size_t inputs) { return inputs - 1; }
  static constexpr Count reads{2, 3}, writes{1, 2};
};
/// x [T, n] -> y [T, n].
struct Activation {
  static constexpr std::string_view op = "activation";
  enum In : std::size_t { x };
  enum Out : std::size_t { y };
  static constexpr Count reads = 1, writes = 1;
  std::string activation;
  static constexpr auto fields() { return std::tuple{Given{"activation", &Activation::activation}}; }
};
/// x, dy -> dx.
struct ActivationGrad : Activation {
  static constexpr std::string_view op = "activation_grad";
  enum In : std::size_t { x, dy };
  enum Out : std::size_t { dx };
  static constexpr Count reads = 2, writes = 1;
};
/// x [T, n], alpha_p [1], alpha_n [1] -> y [T, n] (kernels/activation/xielu.hpp).
struct Xielu {
  static constexpr std::string_view op = "xielu";
  enum In : std::size_t { x, alpha_p, alpha_n };
  enum Out : std::size_t { y };
  static constexpr Count reads = 3, writes = 1;
  double beta = 0.5, eps = -1e-6;
  static constexpr auto fields() {
    return std::tuple{Unusual{"beta", &Xielu::beta}, Unusual{"eps", &Xielu::eps}};
  }
};
/// x, alpha_p, alpha_n, dy -> dx, dalpha_p, dalpha_n, workspace.
struct XieluGrad {
  static constexpr std::string_view op = "xielu_grad";
  enum In : std::size_t { x, alpha_p, alpha_n, dy };
  enum Out : std::size_t { dx, dalpha_p, dalpha_n, workspace };
  static constexpr Count reads{4, 6}, writes = 4;
  double beta = 0.5, eps = -1e-6;
  bool accumulate = false;  ///< to both gradients
  static constexpr auto fields() {
    return std::tuple{Unusual{"beta", &XieluGrad::beta}, Unusual{"eps", &XieluGrad::eps},
                      Given{accumulate_key, &XieluGrad::accumulate}};
  }
};

}  // namespace ztrain
