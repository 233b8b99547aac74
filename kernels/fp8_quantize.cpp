#include "kernels/fp8_quantize.hpp"

#include "base/error.hpp"
#include "kernels/fp8_scale.hpp"

namespace ztrain::kernels {
namespace {

constexpr std::int64_t granule = 16;

/// n products, in registers; on a GPU a pack of them.
template <class F>
KOKKOS_INLINE_FUNCTION void for_products(const bf16* __restrict x, const float* __restrict columns,
                                         std::int64_t n, const F& f) {
  if constexpr (on_gpu) {
    const auto values = *reinterpret_cast<const Packed<bf16>*>(x);
    const auto factors = *reinterpret_cast<const Packed<float>*>(columns);
    for (std::int64_t i = 0; i < pack; ++i) f(i, load(values.at[i]) * factors.at[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) f(i, load(x[i]) * columns[i]);
  }
}

KOKKOS_INLINE_FUNCTION std::uint32_t largest_scaled(const bf16* x, const float* columns, std::int64_t n) {
  std::uint32_t largest = 0;
  for_products(x, columns, n, [&](std::int64_t, float product) {
    const std::uint32_t bits = magnitude_bits(product);
    largest = bits > largest ? bits : largest;
  });
  return largest;
}

template <class Code>
KOKKOS_INLINE_FUNCTION void encode_scaled(const bf16* x, const float* columns, float factor,
                                          Code* __restrict codes, std::int64_t n) {
  if constexpr (on_gpu) {
    Packed<Code> out;
    for_products(x, columns, n, [&](std::int64_t i, float product) { out.at[i] = Code(product * factor); });
    *reinterpret_cast<Packed<Code>*>(codes) = out;
  } else {
    for_products(x, columns, n, [=](std::int64_t i, float product) { codes[i] = Code(product * factor); });
  }
}

struct LargestOfRow {
  Matrix<const bf16> x;
  float* largest;
  template <class L>
  KOKKOS_INLINE_FUNCTION void operator()(const L& lanes, std::int64_t row) const {
    const bf16* from = x.data + row * x.cols;
    const auto bits = lanes.template maximum<std::uint32_t>(
        x.cols, 0, [=](std::int64_t begin, std::int64_t n) { return largest_of(from + begin, n); });
    lanes.once([&] { largest[row] = std::bit_cast<float>(bits); });
  }
};

template <class Code>
struct ScaleOfAll {
  const float* largest;
  std::int64_t count;
  float* scale;
  template <class L>
  KOKKOS_INLINE_FUNCTION void operator()(const L& lanes, std::int64_t) const {
    const float* from = largest;
    const auto bits = lanes.template maximum<std::uint32_t>(
        count, 0, [=](std::int64_t begin, std::int64_t n) { return largest_of_found(from + begin, n); });
    lanes.once([&] { *scale = fp8_scale<Code>(bits); });
  }
};

template <class Code>
struct EncodeRow {
  Matrix<const bf16> x;
  const float* scale;
  Code* codes;
  template <class L>
  KOKKOS_INLINE_FUNCTION void operator()(const L& lanes, std::int64_t row) const {
    const bf16* from = x.data + row * x.cols;
    Code* to = codes + row * x.cols;
    const float factor = inverse_scale(*scale);
    lanes.each(x.cols,
               [=](std::int64_t begin, std::int64_t n) { encode(from + begin, factor, to + begin, n); });
  }
};

/// The second reading of a row finds it in a cache.
template <class Code, bool scaled>
struct QuantizeRow {
  Matrix<const bf16> x;
  const float* columns;
  Code* codes;
  float* scales;
  template <class L>
  KOKKOS_INLINE_FUNCTION void operator()(const L& lanes, std::int64_t row) const {
    const bf16* from = x.data + row * x.cols;
    const float* by = columns;
    Code* to = codes + row * x.cols;
    const auto bits =
        lanes.template maximum<std::uint32_t>(x.cols, 0, [=](std::int64_t begin, std::int64_t n) {
          if constexpr (scaled) {
            return largest_scaled(from + begin, by + begin, n);
          } else {
            return largest_of(from + begin, n);
          }
        });
    const float scale = fp8_scale<Code>(bits), factor = inverse_scale(scale);
    lanes.once([&] { scales[row] = scale; });
    lanes.each(x.cols, [=](std::int64_t begin, std::int64_t n) {
      if constexpr (scaled) {
        encode_scaled(from + begin, by + begin, factor, to + begin, n);
      } else {
        encode(from + begin, factor, to + begin, n);
      }
    });
  }
};

template <class Code>
void check(Matrix<const bf16> x, Matrix<Code> codes) {
  REQUIRE(x.rows == codes.rows && x.cols == codes.cols && x.cols % granule == 0,
          "fp8 quantisation: {} x {} elements to {} x {} codes; columns must be a multiple of {}", x.rows,
          x.cols, codes.rows, codes.cols, granule);
}

/// Four words of four bytes each, transposed as a 4 x 4 matrix.
KOKKOS_INLINE_FUNCTION void transpose_words(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c,
                                            std::uint32_t& d) {
  constexpr std::uint32_t even = 0x00ff00ffu, odd = 0xff00ff00u;
  const std::uint32_t ab0 = (a & even) | (b << 8 & odd), ab1 = (a >> 8 & even) | (b & odd);
  const std::uint32_t cd0 = (c & even) | (d << 8 & odd), cd1 = (c >> 8 & even) | (d & odd);
  a = (ab0 & 0xffffu) | cd0 << 16;
  b = (ab1 & 0xffffu) | cd1 << 16;
  c = ab0 >> 16 | (cd0 & 0xffff0000u);
  d = ab1 >> 16 | (cd1 & 0xffff0000u);
}

/// 16 bytes of a row.
struct alignas(16) Words {
  std::uint32_t at[4];
};

/// Blocks of 16 x 16 bytes, one per thread, numbered so that 32 neighbours are 8 blocks below one another by
/// 4 beside: a warp reads 64 and writes 128 neighbouring bytes at a time.
struct TransposeBlock {
  static constexpr std::int64_t tall = 8, wide = 4;
  const std::uint8_t* from;
  std::uint8_t* to;
  std::int64_t rows, cols;

  std::int64_t count() const {
    return ceil_div(rows / granule, tall) * ceil_div(cols / granule, wide) * tall * wide;
  }
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t index) const {
    const std::int64_t across = (cols / granule + wide - 1) / wide, group = index / (tall * wide);
    const std::int64_t row = (group / across * tall + index / wide % tall) * granule;
    const std::int64_t col = (group % across * wide + index % wide) * granule;
    if (row >= rows || col >= cols) return;
    Words block[granule];
    for (std::int64_t i = 0; i < granule; ++i)
      block[i] = *reinterpret_cast<const Words*>(from + (row + i) * cols + col);
    for (int j = 0; j < 4; ++j)
      for (int i = 0; i < granule; i += 4)
        transpose_words(block[i].at[j], block[i + 1].at[j], block[i + 2].at[j], block[i + 3].at[j]);
    for (int j = 0; j < granule; ++j) {
      const Words line{{block[j % 4].at[j / 4], block[4 + j % 4].at[j / 4], block[8 + j % 4].at[j / 4],
                        block[12 + j % 4].at[j / 4]}};
      *reinterpret_cast<Words*>(to + (col + j) * rows + row) = line;
    }
  }
};

}  // namespace

template <class Code>
void fp8_quantize_tensor(Exec& exec, Matrix<const bf16> x, Matrix<Code> codes, float* scale,
                         float* partials) {
  check(x, codes);
  for_wide_rows(exec, x.rows, x.cols, LargestOfRow{x, partials});
  for_wide_rows(exec, 1, x.rows, ScaleOfAll<Code>{partials, x.rows, scale});
  for_wide_rows(exec, x.rows, x.cols, EncodeRow<Code>{x, scale, codes.data});
}

template <class Code>
void fp8_quantize_rows(Exec& exec, Matrix<const bf16> x, const float* columns, Matrix<Code> codes,
                       float* scales) {
  check(x, codes);
  if (columns) {
    for_wide_rows(exec, x.rows, x.cols, QuantizeRow<Code, true>{x, columns, codes.data, scales});
  } else {
    for_wide_rows(exec, x.rows, x.cols, QuantizeRow<Code, false>{x, columns, codes.data, scales});
  }
}

void fp8_transpose(Exec& exec, Matrix<const std::uint8_t> from, std::uint8_t* to) {
  REQUIRE(from.rows % granule == 0 && from.cols % granule == 0,
          "fp8 transposition: {} x {} codes; both must be multiples of {}", from.rows, from.cols, granule);
  const TransposeBlock block{from.data, to, from.rows, from.cols};
  for_rows(exec, block.count(), block);
}

void fill_ones(Exec& exec, Vector<float> values) {
  float* const to = values.data;
  for_elements(
      exec, values.count, KOKKOS_LAMBDA(const std::int64_t begin, const std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) to[begin + i] = 1;
      });
}

#define ZTRAIN_FP8_QUANTIZE(Code)                                                             \
  template void fp8_quantize_tensor(Exec&, Matrix<const bf16>, Matrix<Code>, float*, float*); \
  template void fp8_quantize_rows(Exec&, Matrix<const bf16>, const float*, Matrix<Code>, float*);
ZTRAIN_FP8_QUANTIZE(f8e4m3)
ZTRAIN_FP8_QUANTIZE(f8e5m2)
#undef ZTRAIN_FP8_QUANTIZE

}  // namespace ztrain::kernels
