#pragma once
// How a weight is kept: as it is, or as codes of 4 or 8 bits (kernel_interface/quantized_weights.hpp).

#include <cstdint>

#include "base/shape.hpp"

namespace ztrain {

enum class WeightCode : std::uint8_t { none, nf4, fp4, int8 };

inline constexpr std::int64_t code_quantum = 256;                        ///< elements
inline constexpr std::int64_t scale_block = 64;                          ///< elements that share a scale
inline constexpr std::int64_t nested_block = 256;                        ///< scales that share a scale
inline constexpr std::int64_t scale_group = nested_block * scale_block;  ///< elements of these
inline constexpr std::int64_t blocks_per_quantum = code_quantum / scale_block;

/// Returns the bytes of a quantum of weights in codes of 4 or 8 bits: the codes, then the fp32
/// scales of its blocks.
constexpr std::int64_t coded_quantum_bytes(std::int64_t bits) {
  return code_quantum * bits / 8 + blocks_per_quantum * 4;
}

/// Bytes of a quantum of signs: a bit for each element, and behind them an fp32 scale.
inline constexpr std::int64_t sign_quantum_bytes = code_quantum / 8 + 4;

/// Which elements of a matrix a rank has: element e of its part is element (e / run) * stride + offset +
/// e % run of the whole, whose rows have so many columns.
struct PartOfMatrix {
  std::int64_t run = 1, stride = 1, offset = 0, columns = 1;
  constexpr std::int64_t index_of(std::int64_t e) const { return e / run * stride + offset + e % run; }
  /// Elements of the part that lie in one row, one behind the other.
  constexpr std::int64_t row() const { return run < columns ? run : columns; }
};

/// How a weight is kept.
struct WeightForm {
  WeightCode code = WeightCode::none;
  bool nested = false;  ///< its scales are codes
  bool operator==(const WeightForm&) const = default;

  constexpr bool any() const { return code != WeightCode::none; }
  constexpr bool in_blocks() const { return code == WeightCode::nf4 || code == WeightCode::fp4; }
  /// Bytes of a quantum: its codes, and behind them the scales of its blocks.
  constexpr std::int64_t code_bytes() const { return in_blocks() ? code_quantum / 2 : code_quantum; }
  constexpr std::int64_t quantum_bytes() const {
    return code_bytes() + (in_blocks() ? blocks_per_quantum * (nested ? 1 : 4) : 0);
  }
  constexpr std::int64_t bytes(std::int64_t elements) const {
    return ceil_div(elements, code_quantum) * quantum_bytes();
  }
  /// Number of a parameter's statistics; one that means nothing where there are none.
  constexpr std::int64_t statistics(std::int64_t elements, std::int64_t columns) const {
    if (code == WeightCode::int8) return elements / columns;
    return nested ? ceil_div(elements, scale_group) + 1 : 1;
  }
};

}  // namespace ztrain
