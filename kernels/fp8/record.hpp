#pragma once
// Codes of 8 bits, their scales, and products of them.

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/record.hpp"

namespace ztrain {

/// Constants of ops whose codes have scales.
struct Quantization {
  bool rowwise = false;
  /// Of a node: bits of the AxisSet over whose ranks' parts a scale goes; of linear_fp8: its gradient's.
  std::int64_t axes = 0;
  /// Ranks whose largest magnitudes are an op's last input; 0: the op finds its own.
  std::int64_t found = 0;
  static constexpr auto fields() {
    using Q = Quantization;
    return std::tuple{Given{"rowwise", &Q::rowwise}, Unusual{"axes", &Q::axes}, Unusual{"found", &Q::found}};
  }
};
/// x [T, k], (columns [k], which x is multiplied by), (found [ranks * 1 or T]) -> codes [T, k], scales [1 or
/// T], (workspace where there is one scale, which is not found).
struct Fp8Quantize : Quantization {
  static constexpr std::string_view op = "fp8_quantize";
  enum In : std::size_t { x, columns };
  enum Out : std::size_t { codes, scales, workspace };
  static constexpr Count reads{1, 3}, writes{2, 3};
};
/// x [T, k], (found [ranks]) -> codes [T, k], scales [1], transposed codes [k, T], (workspace). rowwise is
/// false.
struct Fp8QuantizeBoth : Quantization {
  static constexpr std::string_view op = "fp8_quantize_both";
  enum In : std::size_t { x };
  enum Out : std::size_t { codes, scales, transposed, workspace };
  static constexpr Count reads{1, 2}, writes{3, 4};
};
/// x [T, k] codes, x_scales, weight [n, k] codes, weight_scales, (bias [n]) -> y [T, n], workspace.
struct LinearFp8 : Quantization {
  static constexpr std::string_view op = "linear_fp8";
  enum In : std::size_t { x, x_scales, weight, weight_scales, bias };
  enum Out : std::size_t { y, workspace };
  static constexpr Count reads{4, 5}, writes = 2;
  std::int64_t adds_bias = -1;  ///< as Linear's
  static constexpr auto fields() {
    return std::tuple_cat(Quantization::fields(), std::tuple{Unusual{"adds_bias", &LinearFp8::adds_bias}});
  }
};

}  // namespace ztrain
namespace ztrain::program {

/// The part of a weight that a rank steps: elements [begin, begin + count) of the operands.
struct CodedPiece {
  std::int64_t begin = 0, count = 0;
  std::int64_t in_weight = 0;  ///< the first element's index in the weight
  std::int64_t row = 0;        ///< elements that share a scale
  /// fp8_largest: of the first of its rows; fp8_encode: the number of the input with its scales.
  std::int64_t slot = 0;
  bool operator==(const CodedPiece&) const = default;
};
/// param -> slots [S], workspace.
struct Fp8Largest {
  static constexpr std::string_view op = "fp8_largest";
  enum In : std::size_t { parameter };
  enum Out : std::size_t { slots, workspace };
  static constexpr Count reads = 1, writes = 2;
  std::vector<CodedPiece> pieces;
  static constexpr auto fields() { return std::tuple{Given{"pieces", &Fp8Largest::pieces}}; }
};
struct ScaledWeight {
  std::int64_t first_slot = 0;       ///< of the unit, in each shard's slots
  std::int64_t slots_per_shard = 0;  ///< over all units
  std::int64_t slot = 0;             ///< of the weight, from its unit's first
  std::int64_t begin = 0;            ///< of the weight in the unit's flat range
  std::int64_t row = 0;              ///< elements that share a scale
  std::int64_t shard = 0;            ///< elements per shard
  std::int64_t parts = 1;            ///< of the weight, whose slots lie behind one another in each shard
  std::int64_t magnitudes = 0;       ///< 1: the largest ones are given, of which no scale is made yet
  bool operator==(const ScaledWeight&) const = default;
};
/// slots -> scales..., one for each weight, or what slots of its parts are made of.
struct Fp8Scales {
  static constexpr std::string_view op = "fp8_scales";
  enum In : std::size_t { slots };
  static constexpr Count reads = 1, writes{1, any_number};
  std::vector<ScaledWeight> weights;
  static constexpr auto fields() { return std::tuple{Given{"weights", &Fp8Scales::weights}}; }
};
/// param, scales... -> codes. Without scales where the shard is padding.
struct Fp8Encode {
  static constexpr std::string_view op = "fp8_encode";
  enum In : std::size_t { parameter };
  enum Out : std::size_t { codes };
  static constexpr Count reads{1, any_number}, writes = 1;
  std::vector<CodedPiece> pieces;
  static constexpr auto fields() { return std::tuple{Given{"pieces", &Fp8Encode::pieces}}; }
};
/// x [T, k], (columns [k]) -> largest magnitudes [1 or T], (workspace where it is one).
struct Fp8Magnitudes : Quantization {
  static constexpr std::string_view op = "fp8_magnitudes";
  enum In : std::size_t { x, columns };
  enum Out : std::size_t { largest, workspace };
  static constexpr Count reads{1, 2}, writes{1, 2};
};
/// codes [T, k] -> codes [k, T], (ones [k]).
struct Fp8Transpose : NoConstants {
  static constexpr std::string_view op = "fp8_transpose";
  enum In : std::size_t { codes };
  enum Out : std::size_t { transposed, ones };
  static constexpr Count reads = 1, writes{1, 2};
};
/// dy [T, n] codes, dy_scales, weight^T [k, n] codes, weight_scales -> dx [T, k], workspace.
struct LinearFp8GradInput {
  static constexpr std::string_view op = "linear_fp8_grad_input";
  enum In : std::size_t { dy, dy_scales, weight, weight_scales };
  enum Out : std::size_t { dx, workspace };
  static constexpr Count reads{4, 5}, writes = 2;
  bool accumulate = false, rowwise = false;
  static constexpr auto fields() {
    return std::tuple{Given{accumulate_key, &LinearFp8GradInput::accumulate},
                      Given{"rowwise", &LinearFp8GradInput::rowwise}};
  }
};
/// dy^T [n, T] codes, dy_scale, x^T [k, T] codes, x_scale -> dweight [n, k], workspace.
struct LinearFp8GradWeight : LinearFp8GradInput {
  static constexpr std::string_view op = "linear_fp8_grad_weight";
  enum In : std::size_t { dy, dy_scales, x, x_scales };
  enum Out : std::size_t { dweight, workspace };
};

}  // namespace ztrain::program
