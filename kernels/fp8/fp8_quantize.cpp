#include "kernels/fp8/fp8_quantize.hpp"

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/fp8/fp8_tiles.hpp"
#include "kernels/launch/threads.hpp"

namespace ztrain::kernels {
namespace {

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
    float scaled[pack];
    for_products(x, columns, n, [&](std::int64_t i, float product) { scaled[i] = product * factor; });
    *reinterpret_cast<PackedCodes*>(codes) = packed_codes<Code>(scaled);
  } else {
    for_products(x, columns, n, [=](std::int64_t i, float product) { codes[i] = Code(product * factor); });
  }
}

/// Parts of an array, `part` elements each.
struct LargestOfPart {
  const bf16* x;
  std::int64_t count, part;
  float* largest;
  template <class L>
  KOKKOS_INLINE_FUNCTION void operator()(const L& lanes, std::int64_t index) const {
    const std::int64_t first = index * part, left = count - first;
    find_largest(lanes, x + first, left < part ? left : part, largest + index);
  }
};

/// A tile by a team of a GPU.
template <class Code, bool transposed>
struct TileTeam {
  Fp8Tiles<Code, transposed> tiles;
  KOKKOS_INLINE_FUNCTION void operator()(const ThreadsTeam& team) const {
    tiles.run(TeamThreads(team), team.league_rank());
  }
};

/// 16 rows by the one thread of a CPU.
template <class Code, bool transposed>
struct EncodeStrip {
  Fp8Target<Code> target;
  Fp8Found found;
  float* scale;

  void operator()(std::int64_t strip) const {
    const float value = fp8_scale<Code>(largest_of(found.largest, found.count));
    if (strip == 0) *scale = value;
    const float factor = inverse_scale(value);
    const std::int64_t first = strip * fp8_granule, cols = target.cols;
    const std::int64_t end = first + fp8_granule < target.rows ? first + fp8_granule : target.rows;
    for (std::int64_t row = first; row < end; ++row)
      encode(target.x + row * cols, factor, target.codes + row * cols, cols);
    if constexpr (transposed)
      for (std::int64_t col = 0; col < cols; col += fp8_granule)
        transpose_block(reinterpret_cast<const std::uint8_t*>(target.codes), target.transposed, target.rows,
                        cols, first, col);
  }
};

template <class Code, bool transposed>
void encode_tiles(Exec& exec, const Fp8Target<Code>& target, const Fp8Found& found, float* scale) {
  static_assert(carried<TileTeam<Code, transposed>>);
  if constexpr (on_gpu) {
    const Fp8Tiles<Code, transposed> tiles{target, found, scale};
    for_teams<3, tiles.threads>(exec, tiles.count(), tiles.threads, 1, 0, TileTeam<Code, transposed>{tiles});
  } else {
    for_rows(exec, ceil_div(target.rows, fp8_granule), EncodeStrip<Code, transposed>{target, found, scale});
  }
}

/// What the parts of an array are joined into.
struct LargestOfFound {
  Fp8Found found;
  float* largest;
  template <class L>
  KOKKOS_INLINE_FUNCTION void operator()(const L& lanes, std::int64_t) const {
    find_largest(lanes, found.largest, found.count, largest);
  }
};

template <bool scaled, class L>
KOKKOS_INLINE_FUNCTION std::uint32_t largest_of_row(const L& lanes, const bf16* from, const float* by,
                                                    std::int64_t cols) {
  return lanes.template maximum<std::uint32_t>(cols, 0, [=](std::int64_t begin, std::int64_t n) {
    if constexpr (scaled) {
      return largest_scaled(from + begin, by + begin, n);
    } else {
      return largest_of(from + begin, n);
    }
  });
}

template <bool scaled>
struct LargestOfRow {
  Matrix<const bf16> x;
  const float* columns;
  float* largest;
  template <class L>
  KOKKOS_INLINE_FUNCTION void operator()(const L& lanes, std::int64_t row) const {
    const auto bits = largest_of_row<scaled>(lanes, x.data + row * x.cols, columns, x.cols);
    lanes.once([&] { largest[row] = std::bit_cast<float>(bits); });
  }
};

/// The second reading of a row finds it in a cache.
template <class Code, bool scaled>
struct QuantizeRow {
  Matrix<const bf16> x;
  const float* columns;
  Code* codes;
  float* scales;
  Fp8Found found;  ///< [parts, rows], or nothing
  template <class L>
  KOKKOS_INLINE_FUNCTION void operator()(const L& lanes, std::int64_t row) const {
    const bf16* from = x.data + row * x.cols;
    const float* by = columns;
    Code* to = codes + row * x.cols;
    std::uint32_t bits = 0;
    if (found.count == 0) {
      bits = largest_of_row<scaled>(lanes, from, by, x.cols);
    } else {
      for (std::int64_t i = row; i < found.count; i += x.rows) {
        const std::uint32_t other = magnitude_bits(found.largest[i]);
        bits = other > bits ? other : bits;
      }
    }
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

Vector<const float> largest_of_parts(Exec& exec, Matrix<const bf16> x, float* partials) {
  const std::int64_t count = x.rows * x.cols, part = fp8_part(count), parts = ceil_div(count, part);
  for_wide_rows(exec, parts, part, LargestOfPart{x.data, count, part, partials});
  return {partials, parts};
}

template <class Code>
void check(Matrix<const bf16> x, Matrix<Code> codes) {
  REQUIRE(x.rows == codes.rows && x.cols == codes.cols && x.cols % fp8_granule == 0,
          "fp8 quantisation: {} x {} elements to {} x {} codes; columns must be a multiple of {}", x.rows,
          x.cols, codes.rows, codes.cols, fp8_granule);
  REQUIRE(on_words(x.data) && on_words(codes.data),
          "fp8 quantisation: elements and codes must begin on multiples of {} bytes", sizeof(PackWords));
}

/// Blocks of 16 x 16 bytes, one per thread, numbered so that 32 neighbours are 8 blocks below one another by
/// 4 beside: a warp reads 64 and writes 128 neighbouring bytes at a time.
struct TransposeBlocks {
  static constexpr std::int64_t tall = 8, wide = 4;
  const std::uint8_t* from;
  std::uint8_t* to;
  std::int64_t rows, cols;
  float* ones;  ///< [cols], or null

  std::int64_t count() const {
    return ceil_div(rows / fp8_granule, tall) * ceil_div(cols / fp8_granule, wide) * tall * wide;
  }
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t index) const {
    const std::int64_t across = (cols / fp8_granule + wide - 1) / wide, group = index / (tall * wide);
    const std::int64_t row = (group / across * tall + index / wide % tall) * fp8_granule;
    const std::int64_t col = (group % across * wide + index % wide) * fp8_granule;
    if (row >= rows || col >= cols) return;
    transpose_block(from, to, rows, cols, row, col);
    if (ones && row == 0)
      for (int i = 0; i < fp8_granule; ++i) ones[col + i] = 1;
  }
};

}  // namespace

template <class Code>
void fp8_quantize_tensor_by(Exec& exec, Matrix<const bf16> x, Matrix<Code> codes, std::uint8_t* transposed,
                            float* scale, Vector<const float> found) {
  check(x, codes);
  REQUIRE(!transposed || (x.rows % fp8_granule == 0 && on_words(transposed)),
          "fp8 quantisation: {} rows are transposed; they must be a multiple of {}, and the result begin on "
          "one of {} bytes",
          x.rows, fp8_granule, sizeof(PackWords));
  const Fp8Target<Code> target{x.data, x.rows, x.cols, codes.data, transposed};
  if (transposed)
    encode_tiles<Code, true>(exec, target, {found.data, found.count}, scale);
  else
    encode_tiles<Code, false>(exec, target, {found.data, found.count}, scale);
}

template <class Code>
void fp8_quantize_tensor(Exec& exec, Matrix<const bf16> x, Matrix<Code> codes, std::uint8_t* transposed,
                         float* scale, float* partials) {
  fp8_quantize_tensor_by(exec, x, codes, transposed, scale, largest_of_parts(exec, x, partials));
}

void fp8_largest_of_tensor(Exec& exec, Matrix<const bf16> x, float* largest, float* partials) {
  const Vector<const float> parts = largest_of_parts(exec, x, partials);
  for_wide_rows(exec, 1, parts.count, LargestOfFound{{parts.data, parts.count}, largest});
}

void fp8_largest_of_rows(Exec& exec, Matrix<const bf16> x, const float* columns, float* largest) {
  if (columns) {
    for_wide_rows(exec, x.rows, x.cols, LargestOfRow<true>{x, columns, largest});
  } else {
    for_wide_rows(exec, x.rows, x.cols, LargestOfRow<false>{x, columns, largest});
  }
}

template <class Code>
void fp8_quantize_rows(Exec& exec, Matrix<const bf16> x, const float* columns, Matrix<Code> codes,
                       float* scales, Vector<const float> found) {
  check(x, codes);
  REQUIRE(on_words(columns), "fp8 quantisation: factors of columns must begin on a multiple of {} bytes",
          sizeof(PackWords));
  const Fp8Found parts{found.data, found.count};
  if (columns) {
    for_wide_rows(exec, x.rows, x.cols, QuantizeRow<Code, true>{x, columns, codes.data, scales, parts});
  } else {
    for_wide_rows(exec, x.rows, x.cols, QuantizeRow<Code, false>{x, columns, codes.data, scales, parts});
  }
}

void fp8_transpose(Exec& exec, Matrix<const std::uint8_t> from, std::uint8_t* to, float* ones) {
  REQUIRE(from.rows % fp8_granule == 0 && from.cols % fp8_granule == 0,
          "fp8 transposition: {} x {} codes; both must be multiples of {}", from.rows, from.cols,
          fp8_granule);
  REQUIRE(on_words(from.data) && on_words(to), "fp8 transposition: codes must begin on multiples of {} bytes",
          sizeof(PackWords));
  const TransposeBlocks blocks{from.data, to, from.rows, from.cols, ones};
  for_rows(exec, blocks.count(), blocks);
}

ZTRAIN_INSTANCE(fp8_quantize_tensor, f8e4m3)
ZTRAIN_INSTANCE(fp8_quantize_tensor, f8e5m2)
ZTRAIN_INSTANCE(fp8_quantize_tensor_by, f8e4m3)
ZTRAIN_INSTANCE(fp8_quantize_tensor_by, f8e5m2)
ZTRAIN_INSTANCE(fp8_quantize_rows, f8e4m3)
ZTRAIN_INSTANCE(fp8_quantize_rows, f8e5m2)

}  // namespace ztrain::kernels
