#pragma once
// Muon: Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024), as torch.optim.Muon:
//   g = gradient * gradient_multiplier,  lr = learning_rate * lr_scale
//   m = momentum m + (1 - momentum) g,  u = m, or with nesterov (1 - momentum) g + momentum m
//   p = (1 - lr * weight_decay) p - lr * muon_factor * orthogonalised(u)
// The step of a matrix has two halves that work element by element, Muon and MuonMove. The product between
// them (kernels/orthogonal) needs whole matrices.

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/function.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "optim/adamw.hpp"

namespace ztrain::optim {

/// The first half. Its value is u, in the type in which u is orthogonalised; the value before is not read.
struct Muon {
  static constexpr std::string_view name = "muon";
  static constexpr std::string_view doc =
      "orthogonalised momentum for hidden matrices (Jordan et al., 2024), and adamw for all other parameters";
  static constexpr Whole whole = Whole::element;
  static constexpr std::string_view others = AdamW::name;  ///< rule of all other parameters
  static std::vector<StateInfo> states(const Settings&) { return {{"momentum_buffer", {}}}; }

  template <class A>
  struct Coefficients {
    A multiplier, keep, rest, of_gradient, of_buffer;

    ZTRAIN_FUNCTION Coefficients(const StepScalars& s, const Settings& o, const Group&)
        : multiplier(static_cast<A>(s.gradient_multiplier)),
          keep(static_cast<A>(o.momentum)),
          rest(static_cast<A>(1 - o.momentum)),
          of_gradient(o.nesterov ? static_cast<A>(1 - o.momentum) : A(0)),
          of_buffer(o.nesterov ? static_cast<A>(o.momentum) : A(1)) {}
  };

  template <class A>
  ZTRAIN_FUNCTION static A step(A, A gradient, const Coefficients<A>& c, A& buffer) {
    const A g = gradient * c.multiplier;
    buffer = std::fma(c.keep, buffer, c.rest * g);
    return std::fma(c.of_buffer, buffer, c.of_gradient * g);
  }
};

/// The second half. The gradient is the orthogonalised u, and Group::lr_scale includes muon_factor.
struct MuonMove {
  static constexpr std::string_view name = "muon_move";
  static constexpr std::string_view doc = "the second half of a step of muon";
  static constexpr Whole whole = Whole::element;
  static std::vector<StateInfo> states(const Settings&) { return {}; }

  template <class A>
  struct Coefficients {
    A keep, descent;

    ZTRAIN_FUNCTION Coefficients(const StepScalars& s, const Settings&, const Group& group)
        : keep(static_cast<A>(1 - s.learning_rate * group.lr_scale * group.weight_decay)),
          descent(static_cast<A>(-s.learning_rate * group.lr_scale)) {}
  };

  template <class A>
  ZTRAIN_FUNCTION static A step(A value, A orthogonal, const Coefficients<A>& c) {
    return std::fma(value, c.keep, c.descent * orthogonal);
  }
};

inline constexpr std::string_view muon_scales[] = {"rms", "spectral"};

/// Returns the factor of a step that depends on the matrix's shape. "spectral" is Jordan's
/// sqrt(max(1, rows / cols)). "rms" is 0.2 sqrt(max(rows, cols)), which gives steps the size of AdamW's (Liu
/// et al., "Muon is scalable for LLM training", 2025).
inline double muon_factor(std::string_view scale, std::int64_t rows, std::int64_t cols) {
  const auto m = static_cast<double>(rows), n = static_cast<double>(cols);
  if (scale == "spectral") return std::sqrt(std::max(1.0, m / n));
  REQUIRE(scale == "rms", "muon has no scale '{}'", scale);
  return 0.2 * std::sqrt(std::max(m, n));
}

}  // namespace ztrain::optim
