#pragma once
// Norms of rows: T tokens, d wide.

#include <cstdint>
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
  bool one_plus = false;  ///< whether the gain is 1 + the weight
  static constexpr auto fields() {
    return std::tuple{Given{"eps", &RmsNorm::eps}, Unusual{"of_heads", &RmsNorm::of_heads},
                      Unusual{"one_plus", &RmsNorm::one_plus}};
  }
};
/// x, addend, weight -> sum = x + addend, y = rmsnorm(sum), rstd.
struct AddRmsNorm {
  static constexpr std::string_view op = "add_rmsnorm";
  enum In : std::size_t { x, addend, weight };
  enum Out : std::size_t { sum, y, rstd };
  static constexpr Count reads = 3, writes = 3;
  double eps = 0;
  bool one_plus = false;
  static constexpr auto fields() {
    return std::tuple{Given{"eps", &AddRmsNorm::eps}, Unusual{"one_plus", &AddRmsNorm::one_plus}};
  }
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
  bool one_plus = false;
  static constexpr auto fields() {
    return std::tuple{Given{accumulate_key, &RmsNormGrad::accumulate},
                      Unusual{"of_heads", &RmsNormGrad::of_heads}, Given{"addend", &RmsNormGrad::has_addend},
                      Unusual{"one_plus", &RmsNormGrad::one_plus}};
  }
};
/// x [T, d], weight [d], bias [d] -> y, mean [T], rstd [T].
struct LayerNorm {
  static constexpr std::string_view op = "layer_norm";
  enum In : std::size_t { x, weight, bias };
  enum Out : std::size_t { y, mean, rstd };
  static constexpr Count reads = 3, writes = 3;
  double eps = 0;
  static constexpr auto fields() { return std::tuple{Given{"eps", &LayerNorm::eps}}; }
};
/// x, weight, mean, rstd, dy, (addend [T, d], which is added to dx) -> dx, dweight, workspace.
struct LayerNormGrad {
  static constexpr std::string_view op = "layer_norm_grad";
  enum In : std::size_t { x, weight, mean, rstd, dy, addend };
  enum Out : std::size_t { dx, dweight, workspace };
  static constexpr Count reads{5, 7}, writes = 3;
  bool accumulate = false;  ///< to dweight
  bool has_addend = false;
  static constexpr auto fields() {
    return std::tuple{Given{accumulate_key, &LayerNormGrad::accumulate},
                      Given{"addend", &LayerNormGrad::has_addend}};
  }
};
/// x [T, d] -> squares [T], the sums of the rows' squares from one column on.
struct RowSquares {
  static constexpr std::string_view op = "row_squares";
  enum In : std::size_t { x };
  enum Out : std::size_t { y };
  static constexpr Count reads = 1, writes = 1;
  std::int64_t first = 0;  ///< first column that no rank before this one sums
  static constexpr auto fields() { return std::tuple{Unusual{"first", &RowSquares::first}}; }
};
/// x, dsquares -> dx, which is 0 in the columns before `first`.
struct RowSquaresGrad {
  static constexpr std::string_view op = "row_squares_grad";
  enum In : std::size_t { x, dsquares };
  enum Out : std::size_t { dx };
  static constexpr Count reads = 2, writes = 1;
  std::int64_t first = 0;
  static constexpr auto fields() { return std::tuple{Unusual{"first", &RowSquaresGrad::first}}; }
};
/// x [T, d], weight [d], squares [T] -> y = x * weight / sqrt(squares / width + eps).
struct RmsScale {
  static constexpr std::string_view op = "rms_scale";
  enum In : std::size_t { x, weight, squares };
  enum Out : std::size_t { y };
  static constexpr Count reads = 3, writes = 1;
  double eps = 0;
  std::int64_t width = 0;  ///< elements of a whole row, of which a rank may have some
  static constexpr auto fields() {
    return std::tuple{Given{"eps", &RmsScale::eps}, Given{"width", &RmsScale::width}};
  }
};
/// x, weight, squares, dy -> dx, dsquares, dweight, workspace.
struct RmsScaleGrad {
  static constexpr std::string_view op = "rms_scale_grad";
  enum In : std::size_t { x, weight, squares, dy };
  enum Out : std::size_t { dx, dsquares, dweight, workspace };
  static constexpr Count reads{4, 5}, writes = 4;
  double eps = 0;
  std::int64_t width = 0;
  bool accumulate = false;  ///< to dweight
  static constexpr auto fields() {
    return std::tuple{Given{"eps", &RmsScaleGrad::eps}, Given{"width", &RmsScaleGrad::width},
                      Given{accumulate_key, &RmsScaleGrad::accumulate}};
  }
};

}  // namespace ztrain
