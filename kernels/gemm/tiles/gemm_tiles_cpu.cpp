// Products by AMX. That of fp32 follows G. Henry, P. T. P. Tang and A. Heinecke, "Leveraging the bfloat16
// Artificial Intelligence Datatype For Higher-Precision Computations" (2019): each number is the sum of three
// bf16, and of the nine products of parts the six largest are formed. What is left out is 2^-24 of a
// product of two numbers on average, and 2^-21 at most; what fp32 rounds it by is 2^-24 at most.

#include "kernels/gemm/gemm_library.hpp"
#include "kernels/gemm/gemm_ragged.hpp"
#include "kernels/gemm/gemm_ways.hpp"
#include "kernels/gemm/half_unit_cpu.hpp"
#include "kernels/gemm/tiles/tile_panels.hpp"

#ifdef ZTRAIN_GEMM_TILES

#include "base/shape.hpp"

namespace ztrain::kernels {
namespace {

using namespace gemm_tiles;

/// A block of the right operand is one of so many bytes: it stays in the second cache. A panel of the left
/// operand of the same depth is on the stack.
constexpr std::int64_t right_bytes = std::int64_t{3} << 19;
constexpr std::int64_t most_cols = 1024;
static_assert(right_bytes + edge * most_cols * 4 <= gemm_base_workspace_bytes,
              "and a strip of sums behind it");
template <class T>
constexpr std::int64_t most_depth = right_bytes / (most_cols / edge) / block_bytes<T>* edge;

/// Two tiles of rows by two of columns, to the sums of tiles 0 to 3. Each load stands where its tile is
/// needed first, so that it goes on beside the products before.
inline void multiply_both(const std::byte* left, const std::byte* right) {
  _tile_loadd(4, left, 64);
  _tile_loadd(6, right, 64);
  _tile_dpbf16ps(0, 4, 6);
  _tile_loadd(7, right + tile_bytes, 64);
  _tile_dpbf16ps(1, 4, 7);
  _tile_loadd(5, left + tile_bytes, 64);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}
/// The same with the columns that are loaded.
inline void multiply_left(const std::byte* left) {
  _tile_loadd(4, left, 64);
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_loadd(5, left + tile_bytes, 64);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}
/// The same with the rows that are loaded.
inline void multiply_right(const std::byte* right) {
  _tile_loadd(6, right, 64);
  _tile_dpbf16ps(0, 4, 6);
  _tile_loadd(7, right + tile_bytes, 64);
  _tile_dpbf16ps(1, 4, 7);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

/// 32 x 32 sums in rows that begin `stride` elements apart, over blocks of the depth.
template <class T>
void multiply(const std::byte* left, const std::byte* right, int blocks, bool add, float* sums,
              std::int64_t stride) {
  constexpr int q = half::quantum;
  const auto bytes = static_cast<std::size_t>(stride) * sizeof(float);
  float* const lower = sums + q * stride;
  __asm__ volatile("" ::: "memory");  // the compiler knows of no memory that tiles are loaded from
  if (add) {
    _tile_loadd(0, sums, bytes);
    _tile_loadd(1, sums + q, bytes);
    _tile_loadd(2, lower, bytes);
    _tile_loadd(3, lower + q, bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int block = 0; block < blocks; ++block, left += block_bytes<T>, right += block_bytes<T>) {
    const auto part = [](const std::byte* side, int number) { return side + number * part_bytes; };
    multiply_both(left, right);
    if constexpr (parts<T> == 3) {
      multiply_right(part(right, 1));
      multiply_left(part(left, 1));
      multiply_right(right);
      multiply_left(part(left, 2));
      multiply_both(left, part(right, 2));
    }
  }
  _tile_stored(0, sums, bytes);
  _tile_stored(1, sums + q, bytes);
  _tile_stored(2, lower, bytes);
  _tile_stored(3, lower + q, bytes);
}

/// How a product is cut: C into blocks of rows x cols, the depth into pieces.
struct Cut {
  std::int64_t rows, cols, depth;

  std::int64_t panel_bytes(std::int64_t block) const { return depth / edge * block; }
};

std::int64_t even_parts(std::int64_t count, std::int64_t most) {
  return round_up(ceil_div(count, ceil_div(count, most)), edge);
}

/// 16-bit results whose depth is in several pieces are summed in the workspace behind the right operand's
/// block, so that what it holds, `workspace` bytes, limits the rows.
template <class In, class Out>
Cut cut_of(const GemmShape& s, std::int64_t workspace) {
  Cut cut{round_up(s.m, edge), even_parts(s.n, most_cols), even_parts(s.k, most_depth<In>)};
  if (std::is_same_v<Out, float> || cut.depth >= s.k) return cut;
  cut.rows = std::min(cut.rows, (workspace - right_bytes) / (cut.cols * 4) / edge * edge);
  return cut;
}

template <class In, class Out>
class GemmTiles : public Gemm {
 public:
  GemmTiles(const GemmShape& shape, std::int64_t workspace)
      : shape_(shape), cut_(cut_of<In, Out>(shape, workspace)) {}

  void run(Exec&, const void* a, const void* b, const void* bias, void* c, void* workspace) override {
    const half::TileRegisters registers(half::Unit::tiles);
    const GemmShape& s = shape_;
    const Task task{{static_cast<const In*>(a), s.trans_a ? 1 : s.lda, s.trans_a ? s.lda : 1},
                    {static_cast<const In*>(b), s.trans_b ? s.ldb : 1, s.trans_b ? 1 : s.ldb},
                    static_cast<const In*>(bias),
                    static_cast<Out*>(c),
                    static_cast<std::byte*>(workspace),
                    reinterpret_cast<float*>(static_cast<std::byte*>(workspace) + right_bytes)};
    for (std::int64_t j = 0; j < s.n; j += cut_.cols)
      for (std::int64_t i = 0; i < s.m; i += cut_.rows)
        for (std::int64_t d = 0; d < s.k; d += cut_.depth) add_block(task, {i, j, d});
  }

  std::string implementation() const override {
    return parts<In> == 3 ? "fp32 as six products of bf16 by AMX" : "bf16 by AMX";
  }

 private:
  struct Task {
    Operand<In> a, b;
    const In* bias;
    Out* c;
    std::byte* right;
    float* sums;
  };
  /// A row, a column and an element of the depth.
  struct Place {
    std::int64_t i, j, d;
  };

  static int at_most(std::int64_t count, std::int64_t most) {
    return static_cast<int>(std::min(count, most));
  }

  /// The products of one piece of the depth for one block of C.
  void add_block(const Task& task, const Place& from) const {
    const std::int64_t panel = cut_.panel_bytes(block_bytes<In>);
    const int depth = at_most(shape_.k - from.d, cut_.depth), cols = at_most(shape_.n - from.j, cut_.cols);
    for (int j = 0; j < cols; j += edge)
      pack_panel<Side::right>(task.b.at(from.j + j, from.d), {cols - j, depth},
                              task.right + j / edge * panel);
    alignas(64) std::byte left[right_bytes / most_cols * edge];
    const int rows = at_most(shape_.m - from.i, cut_.rows);
    for (int i = 0; i < rows; i += edge) {
      pack_panel<Side::left>(task.a.at(from.i + i, from.d), {rows - i, depth}, left);
      for (int j = 0; j < cols; j += edge) {
        const std::byte* const right = task.right + j / edge * panel;
        const auto products = [&](bool add, float* sums, std::int64_t stride) {
          multiply<In>(left, right, static_cast<int>(ceil_div(depth, edge)), add, sums, stride);
        };
        add_square(task, {from.i + i, from.j + j, from.d}, i * cut_.cols + j, products);
      }
    }
  }

  /// fp32 results are summed where they belong: the sums of each piece of the depth alone, which are added to
  /// those before. So partial sums stay small, and their rounding with them.
  template <class Products>
  void add_square(const Task& task, const Place& at, std::int64_t sums, const Products& products) const {
    const int rows = at_most(shape_.m - at.i, edge), cols = at_most(shape_.n - at.j, edge);
    Out* const c = task.c + at.i * shape_.ldc + at.j;
    const In* const bias = shape_.bias ? task.bias + at.j : nullptr;
    const bool begins = at.d == 0, ends = at.d + cut_.depth >= shape_.k;
    alignas(64) float square[edge * edge];
    if constexpr (std::is_same_v<Out, float>) {
      products(false, square, edge);
      for (int i = 0; i < rows; ++i) {
        const float* const row = square + i * edge;
        if (!begins || shape_.accumulate)
          add_row(row, cols, c + i * shape_.ldc);
        else
          std::copy_n(row, cols, c + i * shape_.ldc);
        if (begins && bias) add_row(bias, cols, c + i * shape_.ldc);
      }
    } else {
      const bool whole = begins && ends;
      float* const from = whole ? square : task.sums + sums;
      const std::int64_t stride = whole ? edge : cut_.cols;
      products(!begins, from, stride);
      if (ends)
        for (int i = 0; i < rows; ++i) finish_row(from + i * stride, bias, cols, c + i * shape_.ldc);
    }
  }

  template <class T>
  static void add_row(const T* __restrict from, int cols, float* __restrict c) {
    for (int j = 0; j < cols; ++j) c[j] += static_cast<float>(from[j]);
  }

  /// Rounds a row of sums once, with what is added to them.
  void finish_row(const float* sums, const bf16* bias, int cols, bf16* c) const {
    __m512 low = _mm512_loadu_ps(sums), high = _mm512_loadu_ps(sums + half::quantum);
    const auto add = [&](const bf16* row) {
      Words<bf16> words;
      neighbours(row, cols, words);
      low =
          _mm512_add_ps(low, _mm512_cvtpbh_ps(reinterpret_cast<__m256bh>(_mm512_castsi512_si256(words[0]))));
      const __m256i upper = _mm512_extracti64x4_epi64(words[0], 1);
      high = _mm512_add_ps(high, _mm512_cvtpbh_ps(reinterpret_cast<__m256bh>(upper)));
    };
    if (bias) add(bias);
    if (shape_.accumulate) add(c);
    _mm512_mask_storeu_epi16(c, first_of_32(cols), reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
  }

  GemmShape shape_;
  Cut cut_;
};

/// f of the types where there is a product by tiles; else returns false.
template <class F>
bool with_tiles(const GemmShape& s, DType in, DType out, const F& f) {
  if (!may_use_tiles() || std::min(s.m, s.k) < edge) return false;
  if (in == DType::f32 && out == DType::f32) return f.template operator()<float, float>(), true;
  if (in == DType::bf16 && out == DType::bf16) return f.template operator()<bf16, bf16>(), true;
  if (in == DType::bf16 && out == DType::f32) return f.template operator()<bf16, float>(), true;
  return false;
}

}  // namespace

bool splits_fp32() {
  return may_use_tiles();
}

std::unique_ptr<Gemm> make_gemm_tiles(const GemmShape& s, DType in, DType out) {
  std::unique_ptr<Gemm> gemm;
  const std::int64_t workspace = gemm_workspace_bytes(s.m, s.n, s.k, in, out, Target::cpu);
  with_tiles(s, in, out,
             [&]<class In, class Out>() { gemm = std::make_unique<GemmTiles<In, Out>>(s, workspace); });
  return gemm;
}

bool multiply_tiles(Exec& exec, const GemmShape& s, DType in, DType out, const GemmOperands& o) {
  const std::int64_t workspace = gemm_ragged_workspace_bytes(s.m, s.n, s.k, in, out);
  return with_tiles(s, in, out, [&]<class In, class Out>() {
    GemmTiles<In, Out>(s, workspace).run(exec, o.a, o.b, o.bias, o.c, o.workspace);
  });
}

}  // namespace ztrain::kernels

#else

namespace ztrain::kernels {

bool splits_fp32() {
  return false;
}

std::unique_ptr<Gemm> make_gemm_tiles(const GemmShape&, DType, DType) {
  return nullptr;
}

bool multiply_tiles(Exec&, const GemmShape&, DType, DType, const GemmOperands&) {
  return false;
}

}  // namespace ztrain::kernels

#endif
