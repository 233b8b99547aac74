#pragma once
// Norms of rows: T tokens, d wide.

#include <string_view>

#include "kernels/record.hpp"

namespace ztrain {

/// x [T, d], weight [d] -> y, rstd [T]; of_heads: each head of x [T, heads * d] -> y, rstd [T * heads].
struct RmsNorm {
  static constexpr std::string_view op = "rmsnorm";
  enum In : std::size_t { x, weight };
  enum Out : std::size_t { y, rstd };
  static constexpr Count reads = 2, writes = 2;
  double eps = 0;
  bool of_heads = false;
  static constexpr auto fields() {
    return std::tuple{Given{"eps", &RmsNorm::eps}, Unusual{"of_heads", &RmsNorm::of_heads}};
  }
};
/// x, addend, weight -> sum = x + addend, y = rmsnorm(sum), rstd.
struct AddRmsNorm {
  static constexpr std::string_view op = "add_rmsnorm";
  enum In : std::size_t { x, addend, weight };
  enum Out : std::size_t { sum, y, rstd };
  static constexpr Count reads = 3, writes = 3;
  double eps = 0;
  static constexpr auto fields() { return std::tuple{Given{"eps", &AddRmsNorm::eps}}; }
};
/// x, weight, rstd, dy, (addend [T, d], which is added to dx) -> dx, dweight, workspace.
struct RmsNormGrad {
  static constexpr std::string_view op = "rmsnorm_grad";
  enum In : std::size_t { x, weight, rstd, dy, addend };
  enum Out : std::size_t { dx, dweight, workspace };
  static constexpr Count reads{4, 6}, writes = 3;
  bool accumulate = false;  ///< to dweight
  bool of_heads = false;
  bool has_addend = false;
  static constexpr auto fields() {
    return std::tuple{Given{accumulate_key, &RmsNormGrad::accumulate},
                      Unusual{"of_heads", &RmsNormGrad::of_heads}, Given{"addend", &RmsNormGrad::has_addend}};
  }
};

}  // namespace ztrain
