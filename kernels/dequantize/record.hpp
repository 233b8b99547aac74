#pragma once
// Linear layers whose weight is kept as codes (kernel_interface/quantized_weights.hpp).

#include <cstdint>
#include <string_view>

#include "base/weight_form.hpp"
#include "kernels/record.hpp"

namespace ztrain {

/// How the weight is kept.
struct QuantizedWeight {
  std::int64_t code = 0;  ///< WeightCode
  bool nested = false;
  WeightForm form() const { return {static_cast<WeightCode>(code), nested}; }
  static constexpr auto fields() {
    return std::tuple{Given{"code", &QuantizedWeight::code}, Given{"nested", &QuantizedWeight::nested}};
  }
};
/// x [T, k], weight [n, k] codes, statistics, (bias [n]) -> y [T, n]. A node: it becomes a Dequantize and a
/// Linear.
struct LinearQuantized : QuantizedWeight {
  static constexpr std::string_view op = "linear_quantized";
  enum In : std::size_t { x, weight, statistics, bias };
  enum Out : std::size_t { y };
  static constexpr Count reads{3, 4}, writes = 1;
  std::int64_t adds_bias = -1;  ///< as Linear's
  static constexpr auto fields() {
    return std::tuple_cat(QuantizedWeight::fields(),
                          std::tuple{Unusual{"adds_bias", &LinearQuantized::adds_bias}});
  }
};

}  // namespace ztrain
namespace ztrain::program {

/// codes, statistics -> weight [n, k]. The codes are those of the rank's part of the weight, from the quantum
/// on in which element `begin` of the part lies; the weight is the part from that element on.
struct Dequantize : QuantizedWeight {
  static constexpr std::string_view op = "dequantize";
  enum In : std::size_t { codes, statistics };
  enum Out : std::size_t { weight };
  static constexpr Count reads = 2, writes = 1;
  std::int64_t begin = 0;
  std::int64_t run = 1, stride = 1, offset = 0, columns = 1;  ///< PartOfMatrix
  PartOfMatrix part() const { return {run, stride, offset, columns}; }
  static constexpr auto fields() {
    return std::tuple_cat(
        QuantizedWeight::fields(),
        std::tuple{Given{"begin", &Dequantize::begin}, Given{"run", &Dequantize::run},
                   Given{"stride", &Dequantize::stride}, Given{"offset", &Dequantize::offset},
                   Given{"columns", &Dequantize::columns}});
  }
};

/// values [N S] -> codes [N n / code_quantum, coded_quantum_bytes(bits)]: encodes elements [begin, begin + n)
/// of each of N slots of S elements; begin and n are whole quanta. Each rank has a slot, node by node. Codes
/// are written in the order [rank of a node, node].
struct EncodeBlocks {
  static constexpr std::string_view op = "encode_blocks";
  enum In : std::size_t { values };
  enum Out : std::size_t { codes };
  static constexpr Count reads = 1, writes = 1;
  std::int64_t bits = 8;  ///< 4 or 8
  std::int64_t slots = 1, begin = 0, nodes = 1;
  static constexpr auto fields() {
    return std::tuple{Given{"bits", &EncodeBlocks::bits}, Unusual{"slots", &EncodeBlocks::slots},
                      Unusual{"begin", &EncodeBlocks::begin}, Unusual{"nodes", &EncodeBlocks::nodes}};
  }
};
/// codes [n / code_quantum, coded_quantum_bytes(bits)] -> values [n].
struct DecodeBlocks {
  static constexpr std::string_view op = "decode_blocks";
  enum In : std::size_t { codes };
  enum Out : std::size_t { values };
  static constexpr Count reads = 1, writes = 1;
  std::int64_t bits = 8;
  static constexpr auto fields() { return std::tuple{Given{"bits", &DecodeBlocks::bits}}; }
};
/// codes of n elements from each rank of the axes, (values) -> values [n]: decodes and adds up in rank order.
struct SumCodes {
  static constexpr std::string_view op = "sum_codes";
  enum In : std::size_t { codes };
  enum Out : std::size_t { values };
  static constexpr Count reads{1, 2}, writes = 1;
  std::int64_t bits = 8;
  std::int64_t axes = 0;  ///< bits of an AxisSet
  bool accumulate = false;
  static constexpr auto fields() {
    return std::tuple{Given{"bits", &SumCodes::bits}, Given{"axes", &SumCodes::axes},
                      Given{accumulate_key, &SumCodes::accumulate}};
  }
};

}  // namespace ztrain::program
