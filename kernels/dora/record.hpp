#pragma once
// Low-rank adapters whose layers have a learned magnitude for each output (S. Liu et al., "DoRA:
// Weight-Decomposed Low-Rank Adaptation", 2024): y = m / norm * (x (W + s B A)^T), where norm is that of each
// row of W + s B A. Gradients take norm as a constant (section 4.3).

#include <cstdint>
#include <string_view>

#include "kernels/dequantize/record.hpp"
#include "kernels/record.hpp"

namespace ztrain {

/// Scale of the product of an adapter's factors.
struct AdapterFactor {
  double scale = 0;
  static constexpr auto fields() { return std::tuple{Given{"scale", &AdapterFactor::scale}}; }
};
/// weight [n, k], a [r, k], b [n, r] -> squares [n], the sums of the squares of the rows of weight + scale b
/// a.
struct DoraSquares : AdapterFactor {
  static constexpr std::string_view op = "dora_squares";
  enum In : std::size_t { weight, a, b };
  enum Out : std::size_t { squares };
  static constexpr Count reads = 3, writes = 1;
};
/// weight [n, k] codes, statistics, a, b -> squares. A node: it becomes a Dequantize and a DoraSquares.
struct DoraSquaresQuantized : QuantizedWeight {
  static constexpr std::string_view op = "dora_squares_quantized";
  enum In : std::size_t { weight, statistics, a, b };
  enum Out : std::size_t { squares };
  static constexpr Count reads = 4, writes = 1;
  double scale = 0;
  static constexpr auto fields() {
    return std::tuple_cat(QuantizedWeight::fields(),
                          std::tuple{Given{"scale", &DoraSquaresQuantized::scale}});
  }
};
/// x [T, n], magnitude [n], squares [n], (bias [n]) -> y [T, n] = x magnitude / sqrt(squares) + bias.
struct DoraScale {
  static constexpr std::string_view op = "dora_scale";
  enum In : std::size_t { x, magnitude, squares, bias };
  enum Out : std::size_t { y };
  static constexpr Count reads{3, 4}, writes = 1;
  std::int64_t adds_bias = -1;  ///< as Linear's
  static constexpr auto fields() { return std::tuple{Unusual{"adds_bias", &DoraScale::adds_bias}}; }
};
/// dy [T, n], x [T, n], squares [n] -> dmagnitude [n].
struct DoraGradMagnitude {
  static constexpr std::string_view op = "dora_grad_magnitude";
  enum In : std::size_t { dy, x, squares };
  enum Out : std::size_t { dmagnitude };
  static constexpr Count reads{3, 4}, writes = 1;
  bool accumulate = false;
  static constexpr auto fields() { return std::tuple{Given{accumulate_key, &DoraGradMagnitude::accumulate}}; }
};

}  // namespace ztrain
