#include "kernels/dequantize/block_codes.hpp"

#include <bit>
#include <limits>
#include <type_traits>

#include "base/error.hpp"
#include "kernels/launch/instances.hpp"
#include "kernels/launch/rows.hpp"

namespace ztrain::kernels {
namespace {

/// Addresses of the codes and the scale of block b.
template <class Byte>
struct Blocks {
  Byte* codes;
  std::int64_t bits;

  KOKKOS_INLINE_FUNCTION Byte* quantum_of(std::int64_t b) const {
    return codes + b / blocks_per_quantum * coded_quantum_bytes(bits);
  }
  KOKKOS_INLINE_FUNCTION Byte* codes_of(std::int64_t b) const {
    return quantum_of(b) + b % blocks_per_quantum * (scale_block * bits / 8);
  }
  KOKKOS_INLINE_FUNCTION auto& scale_of(std::int64_t b) const {
    using Float = std::conditional_t<std::is_const_v<Byte>, const float, float>;
    return reinterpret_cast<Float*>(quantum_of(b) + code_quantum * bits / 8)[b % blocks_per_quantum];
  }
};

constexpr std::uint32_t infinity_bits = 0x7f800000;

template <class T>
struct EncodeBlock {
  const T* x;
  std::int64_t stride, each;    ///< elements from one slot to the next, and blocks to encode of each slot
  std::int64_t nodes, on_node;  ///< number of nodes, and slots of each
  Blocks<std::uint8_t> blocks;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t b) const {
    const std::int64_t written = b / each, slot = written % nodes * on_node + written / nodes;
    const T* from = x + slot * stride + b % each * scale_block;
    std::uint32_t largest = 0;
    for (std::int64_t i = 0; i < scale_block; ++i) {
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(static_cast<float>(from[i])) & 0x7fffffffU;
      largest = bits > largest ? bits : largest;
    }
    const bool finite = largest < infinity_bits;
    const float levels = blocks.bits == 8 ? 127.0F : 7.0F;
    // Below the least normal number a quotient has lost bits, and codes could exceed their range.
    const float exact = std::bit_cast<float>(largest) / levels, least = std::numeric_limits<float>::min();
    const float scale = exact < least ? least : exact;
    blocks.scale_of(b) = scale;  // A scale that is not finite makes NaN of the codes 0.
    std::uint8_t* to = blocks.codes_of(b);
    const auto code = [&](std::int64_t i) {
      const float value = static_cast<float>(from[i]) / scale;
      return finite ? static_cast<int>(value < 0 ? value - 0.5F : value + 0.5F) : 0;
    };
    if (blocks.bits == 8)
      for (std::int64_t i = 0; i < scale_block; ++i) to[i] = static_cast<std::uint8_t>(code(i));
    else
      for (std::int64_t i = 0; i < scale_block / 2; ++i)
        to[i] = static_cast<std::uint8_t>((code(2 * i) + 8) << 4 | (code(2 * i + 1) + 8));
  }
};

/// Decodes the same elements from the codes of several ranks and adds them up in rank order.
template <class T>
struct DecodeBlock {
  Blocks<const std::uint8_t> blocks;
  std::int64_t ranks, each;  ///< each: blocks of a rank
  bool accumulate;
  T* y;
  static constexpr std::int64_t piece = on_gpu ? pack : scale_block;  ///< elements of a thread

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t index) const {
    float sum[piece] = {};
    const std::int64_t b = index * piece / scale_block, first = index * piece % scale_block;
    for (std::int64_t r = 0; r < ranks; ++r) add(r * each + b, first, sum);
    T* to = y + index * piece;
    for (std::int64_t i = 0; i < piece; ++i) {
      const auto value = static_cast<acc_t<T>>(sum[i]);
      to[i] = static_cast<T>(accumulate ? static_cast<acc_t<T>>(to[i]) + value : value);
    }
  }
  KOKKOS_INLINE_FUNCTION void add(std::int64_t b, std::int64_t first, float* sum) const {
    const float scale = blocks.scale_of(b);
    const std::uint8_t* from = blocks.codes_of(b) + first * blocks.bits / 8;
    if (blocks.bits == 8)
      for (std::int64_t i = 0; i < piece; ++i)
        sum[i] += static_cast<float>(static_cast<std::int8_t>(from[i])) * scale;
    else
      for (std::int64_t i = 0; i < piece; i += 2) {
        const std::uint8_t both = from[i / 2];
        sum[i] += static_cast<float>((both >> 4) - 8) * scale;
        sum[i + 1] += static_cast<float>((both & 15) - 8) * scale;
      }
  }
};

void check(std::int64_t bits, std::int64_t elements) {
  REQUIRE((bits == 4 || bits == 8) && elements % code_quantum == 0,
          "codes of {} bits for {} elements: bits are 4 or 8, and elements a multiple of {}", bits, elements,
          code_quantum);
}

}  // namespace

template <class T>
void encode_blocks(Exec& exec, std::int64_t bits, Vector<const T> x, PartOfSlots part, std::uint8_t* codes) {
  check(bits, part.count);
  check(bits, part.begin);
  const std::int64_t stride = x.count / part.slots, each = part.count / scale_block;
  REQUIRE(stride * part.slots == x.count && part.slots % part.nodes == 0 && part.begin + part.count <= stride,
          "elements {} to {} of {} slots in {} elements, of {} nodes", part.begin, part.begin + part.count,
          part.slots, x.count, part.nodes);
  for_rows(
      exec, part.slots * each,
      EncodeBlock<T>{x.data + part.begin, stride, each, part.nodes, part.slots / part.nodes, {codes, bits}});
}

template <class T>
void decode_blocks(Exec& exec, std::int64_t bits, CodesOfRanks codes, bool accumulate, Vector<T> y) {
  check(bits, y.count);
  for_rows(exec, y.count / DecodeBlock<T>::piece,
           DecodeBlock<T>{{codes.data, bits}, codes.ranks, y.count / scale_block, accumulate, y.data});
}

ZTRAIN_INSTANCES(encode_blocks)
ZTRAIN_INSTANCES(decode_blocks)

}  // namespace ztrain::kernels
