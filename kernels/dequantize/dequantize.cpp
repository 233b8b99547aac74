#include "kernels/dequantize/dequantize.hpp"

#include <vector>

#include "base/error.hpp"
#include "kernels/launch/device_array.hpp"
#include "kernels/launch/instances.hpp"
#include "kernels/launch/rows.hpp"

namespace ztrain::kernels {
namespace {

/// Elements of one block that a thread decodes.
constexpr std::int64_t piece = on_gpu ? pack : scale_block;

/// Where a weight's codes are. Element `first` of the codes is the first of y.
struct Source {
  const std::uint8_t* codes;
  const float* statistics;
  std::int64_t begin, first, count, quantum_bytes;
  PartOfMatrix part;

  KOKKOS_INLINE_FUNCTION const std::uint8_t* quantum_at(std::int64_t f) const {
    return codes + f / code_quantum * quantum_bytes;
  }
  KOKKOS_INLINE_FUNCTION std::int64_t index_of(std::int64_t f) const {
    return part.index_of(begin + f - first);
  }
  /// Elements [from, to) of the codes that thread i decodes.
  KOKKOS_INLINE_FUNCTION std::int64_t from(std::int64_t i) const {
    const std::int64_t at = (first / piece + i) * piece;
    return at < first ? first : at;
  }
  KOKKOS_INLINE_FUNCTION std::int64_t to(std::int64_t i) const {
    const std::int64_t at = (first / piece + i + 1) * piece, end = first + count;
    return at > end ? end : at;
  }
  std::int64_t pieces() const { return (first + count - 1) / piece - first / piece + 1; }
};

struct Levels {
  float of[16];
};

/// scales: the levels of nested scales; null: scales are floats behind the codes.
template <class T>
struct DecodeFourBits {
  Source source;
  Levels levels;
  const float* scales;
  std::int64_t groups;
  T* y;

  KOKKOS_INLINE_FUNCTION float scale_at(std::int64_t f) const {
    const std::uint8_t* behind = source.quantum_at(f) + code_quantum / 2;
    const std::int64_t block = f % code_quantum / scale_block;
    if (scales == nullptr) return reinterpret_cast<const float*>(behind)[block];
    const float product = scales[behind[block]] * source.statistics[source.index_of(f) / scale_group];
    return product + source.statistics[groups];
  }

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const {
    const std::int64_t from = source.from(i), to = source.to(i);
    const std::uint8_t* codes = source.quantum_at(from);
    const float scale = scale_at(from);
    const std::int64_t shift = from / code_quantum * code_quantum;
    for (std::int64_t f = from; f < to; ++f) {
      const std::uint8_t both = codes[(f - shift) / 2];
      const int code = f % 2 == 0 ? both >> 4 : both & 15;
      y[f - source.first] = static_cast<T>(levels.of[code] * scale);
    }
  }
};

template <class T>
struct DecodeInt8 {
  Source source;
  T* y;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t i) const {
    const std::int64_t from = source.from(i), to = source.to(i);
    const auto* codes = reinterpret_cast<const std::int8_t*>(source.codes);
    const std::int64_t row = source.part.row();
    for (std::int64_t f = from; f < to;) {
      const std::int64_t e = source.begin + f - source.first, in_row = row - e % row;
      const std::int64_t end = f + in_row < to ? f + in_row : to;
      const float scale = source.statistics[source.part.index_of(e) / source.part.columns];
      for (; f < end; ++f)
        y[f - source.first] = static_cast<T>(static_cast<float>(codes[f]) * scale * int8_level);
    }
  }
};

}  // namespace

template <class T>
std::function<void(Exec&)> make_dequantize(const CodedWeight& weight, Vector<T> y) {
  const std::int64_t first = weight.begin % code_quantum;
  const Source source{weight.codes, weight.statistics,           weight.begin, first,
                      y.count,      weight.form.quantum_bytes(), weight.part};
  if (weight.form.code == WeightCode::int8)
    return [=](Exec& exec) { for_rows(exec, source.pieces(), DecodeInt8<T>{source, y.data}); };
  ASSERT(weight.form.in_blocks(), "a weight that is kept as it is has no codes");
  Levels levels{};
  for (std::size_t c = 0; c < 16; ++c) levels.of[c] = levels_of(weight.form.code).levels[c];
  DeviceArray<float> scales;
  if (weight.form.nested) scales = DeviceArray<float>({scale_levels.begin(), scale_levels.end()});
  return [=, groups = weight.statistics_count - 1](Exec& exec) {
    for_rows(exec, source.pieces(), DecodeFourBits<T>{source, levels, scales.data(), groups, y.data});
  };
}

template std::function<void(Exec&)> make_dequantize(const CodedWeight&, Vector<float>);
template std::function<void(Exec&)> make_dequantize(const CodedWeight&, Vector<bf16>);
template std::function<void(Exec&)> make_dequantize(const CodedWeight&, Vector<f16>);
template std::function<void(Exec&)> make_dequantize(const CodedWeight&, Vector<double>);

}  // namespace ztrain::kernels
