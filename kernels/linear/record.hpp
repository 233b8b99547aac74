#pragma once
// Linear layers, of T tokens, from width k to n.

#include <cstdint>
#include <string_view>

#include "kernels/record.hpp"

namespace ztrain {

/// x [T, k], weight [n, k]..., (bias [n]...) -> y [T, n], workspace. parts: weights, and biases, whose rows
/// follow one another in memory; n is the sum of theirs.
struct Linear {
  static constexpr std::string_view op = "linear";
  enum In : std::size_t { x, weight };
  enum Out : std::size_t { y };
  static constexpr Count reads{2, any_number}, writes{1, 2};
  std::int64_t parts = 1;
  /// -1: every rank adds the bias; where y is a part of a sum over ranks: 1 on the one that adds it, 0 on the
  /// others.
  std::int64_t adds_bias = -1;
  constexpr std::size_t bias() const { return weight + static_cast<std::size_t>(parts); }
  static constexpr auto fields() {
    return std::tuple{Unusual{"parts", &Linear::parts}, Unusual{"adds_bias", &Linear::adds_bias}};
  }
};
/// `parts`: weights of the layer.
struct LinearGrad {
  bool accumulate = false;
  std::int64_t parts = 1;
  static constexpr auto fields() {
    return std::tuple{Given{accumulate_key, &LinearGrad::accumulate}, Given{"parts", &LinearGrad::parts}};
  }
};
/// dy [T, n], weight [n, k]... -> dx [T, k], workspace.
struct LinearGradInput : LinearGrad {
  static constexpr std::string_view op = "linear_grad_input";
  enum In : std::size_t { dy, weight };
  enum Out : std::size_t { dx };
  static constexpr Count reads{2, any_number}, writes = 2;
};
/// dy [T, n], x [T, k] -> dweight [n, k]..., workspace.
struct LinearGradWeight : LinearGrad {
  static constexpr std::string_view op = "linear_grad_weight";
  enum In : std::size_t { dy, x };
  enum Out : std::size_t { dweight };
  static constexpr Count reads{2, any_number}, writes{2, any_number};
};
/// dy [T, n] -> dbias [n]...
struct LinearGradBias : LinearGrad {
  static constexpr std::string_view op = "linear_grad_bias";
  enum In : std::size_t { dy };
  enum Out : std::size_t { dbias };
  static constexpr Count reads{1, any_number}, writes{1, any_number};
};

}  // namespace ztrain
