#pragma once
// Products of rows that lie in E groups, each with a matrix of its own: rows [offsets[e], offsets[e + 1]) of
// R rows belong to group e. Offsets are int32 [E + 1], ascend, and are on the device: how many rows a group
// has differs from step to step. Rows from offsets[E] on are not read, and what they get is not defined.

#include <cstdint>
#include <string_view>

#include "kernels/record.hpp"

namespace ztrain {

/// x [R, k], offsets, weight [E, n, k], (bias [E, n]) -> y [R, n], workspace: y = x W_e^T + b_e.
struct GroupedLinear {
  static constexpr std::string_view op = "grouped_linear";
  enum In : std::size_t { x, offsets, weight, bias };
  enum Out : std::size_t { y };
  static constexpr Count reads{3, 4}, writes{1, 2};
  /// -1: every rank adds the bias. Else 1 on the rank that adds it, and 0 on the others.
  std::int64_t adds_bias = -1;
  std::int64_t even_rows = 0;  ///< rows of all groups together if tokens choose evenly; 0: R
  static constexpr auto fields() {
    return std::tuple{Unusual{"adds_bias", &GroupedLinear::adds_bias},
                      Unusual{"even_rows", &GroupedLinear::even_rows}};
  }
};
struct GroupedLinearGrad {
  bool accumulate = false;
  std::int64_t even_rows = 0;
  static constexpr auto fields() {
    return std::tuple{Given{accumulate_key, &GroupedLinearGrad::accumulate},
                      Unusual{"even_rows", &GroupedLinearGrad::even_rows}};
  }
};
/// dy [R, n], offsets, weight -> dx [R, k], workspace: dx = dy W_e.
struct GroupedLinearGradInput : GroupedLinearGrad {
  static constexpr std::string_view op = "grouped_linear_grad_input";
  enum In : std::size_t { dy, offsets, weight };
  enum Out : std::size_t { dx };
  static constexpr Count reads{3, 4}, writes{1, 2};
};
/// dy, offsets, x -> dweight [E, n, k], workspace: dW_e = dy_e^T x_e, zero for a group without rows.
struct GroupedLinearGradWeight : GroupedLinearGrad {
  static constexpr std::string_view op = "grouped_linear_grad_weight";
  enum In : std::size_t { dy, offsets, x };
  enum Out : std::size_t { dweight };
  static constexpr Count reads{3, 4}, writes{1, 2};
};
/// dy, offsets -> dbias [E, n]: column sums of each group.
struct GroupedLinearGradBias : GroupedLinearGrad {
  static constexpr std::string_view op = "grouped_linear_grad_bias";
  enum In : std::size_t { dy, offsets };
  enum Out : std::size_t { dbias };
  static constexpr Count reads{2, 3}, writes = 1;
};

}  // namespace ztrain
