#include "kernels/gemm_half.hpp"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "kernels/rows.hpp"

namespace ztrain::kernels {
namespace {

/// Rows [row, row + rows) and columns [col, col + cols) of a row-major matrix.
struct Window {
  std::int64_t row, rows, col, cols, stride;
};

KOKKOS_INLINE_FUNCTION void widen_row(const f16* __restrict from, float* __restrict to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i]);
}

template <bool add>
KOKKOS_INLINE_FUNCTION void narrow_row(const float* __restrict from, f16* __restrict to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = f16(add ? from[i] + static_cast<float>(to[i]) : from[i]);
}

/// The window's elements, densely.
void widen(Exec& exec, const f16* matrix, const Window& w, float* to) {
  const f16* from = matrix + w.row * w.stride + w.col;
  for_rows(
      exec, w.rows,
      KOKKOS_LAMBDA(const std::int64_t i) { widen_row(from + i * w.stride, to + i * w.cols, w.cols); });
}

void narrow(Exec& exec, const float* from, const Window& w, bool add, f16* matrix) {
  f16* to = matrix + w.row * w.stride + w.col;
  for_rows(
      exec, w.rows, KOKKOS_LAMBDA(const std::int64_t i) {
        if (add) {
          narrow_row<true>(from + i * w.cols, to + i * w.stride, w.cols);
        } else {
          narrow_row<false>(from + i * w.cols, to + i * w.stride, w.cols);
        }
      });
}

/// C's panel (i0, j0) and the panel of k from d0 on.
struct Panel {
  std::int64_t i0, m, j0, n, d0, k;
};

/// Calls f(Panel) for every panel, those of k innermost.
template <class F>
void for_panels(const GemmShape& s, F&& f) {
  constexpr std::int64_t size = gemm_half_panel;
  for (std::int64_t j0 = 0; j0 < s.n; j0 += size)
    for (std::int64_t i0 = 0; i0 < s.m; i0 += size)
      for (std::int64_t d0 = 0; d0 < s.k; d0 += size)
        f(Panel{i0, std::min(size, s.m - i0), j0, std::min(size, s.n - j0), d0, std::min(size, s.k - d0)});
}

template <class Out>
class GemmHalf : public Gemm {
 public:
  explicit GemmHalf(const GemmShape& shape)
      : shape_(shape), places_(gemm_half_places(shape.m, shape.n, shape.k, dtype_of<Out>())) {
    for_panels(shape_, [&](const Panel& p) {
      if (find(p)) return;
      const GemmShape s{.trans_a = shape_.trans_a,
                        .trans_b = shape_.trans_b,
                        .m = p.m,
                        .n = p.n,
                        .k = p.k,
                        .ldc = in_place ? shape_.ldc : p.n,
                        .accumulate = p.d0 > 0 || (in_place && shape_.accumulate),
                        .bias = p.d0 == 0 && shape_.bias};
      products_.push_back({p, make_gemm(s, DType::f32, DType::f32)});
    });
  }

  void run(Exec& exec, const void* a, const void* b, const void* bias, void* c, void* workspace) override {
    auto* const base = static_cast<std::byte*>(workspace);
    const auto at = [&](std::int64_t offset) { return reinterpret_cast<float*>(base + offset); };
    float *const left = at(places_.a), *const right = at(places_.b), *const row = at(places_.bias);
    auto* const out = static_cast<Out*>(c);
    for_panels(shape_, [&](const Panel& p) {
      widen(exec, static_cast<const f16*>(a), window(shape_.trans_a, p.i0, p.m, p.d0, p.k, shape_.lda), left);
      widen(exec, static_cast<const f16*>(b), window(shape_.trans_b, p.d0, p.k, p.j0, p.n, shape_.ldb),
            right);
      if (shape_.bias) widen(exec, static_cast<const f16*>(bias), {0, 1, p.j0, p.n, 0}, row);
      const Window result{p.i0, p.m, p.j0, p.n, shape_.ldc};
      if constexpr (in_place) {
        find(p)->run(exec, left, right, row, out + p.i0 * shape_.ldc + p.j0, workspace);
      } else {
        find(p)->run(exec, left, right, row, at(places_.c), workspace);
        if (p.d0 + p.k == shape_.k) narrow(exec, at(places_.c), result, shape_.accumulate, out);
      }
    });
  }

 private:
  /// fp32 sums are formed where they belong.
  static constexpr bool in_place = std::is_same_v<Out, float>;

  struct Product {
    Panel like;  ///< the first panel that it serves
    std::unique_ptr<Gemm> gemm;
  };

  static Window window(bool transposed, std::int64_t row, std::int64_t rows, std::int64_t col,
                       std::int64_t cols, std::int64_t stride) {
    return transposed ? Window{col, cols, row, rows, stride} : Window{row, rows, col, cols, stride};
  }

  Gemm* find(const Panel& p) const {
    for (const Product& product : products_) {
      const Panel& q = product.like;
      if (q.m == p.m && q.n == p.n && q.k == p.k && (q.d0 > 0) == (p.d0 > 0)) return product.gemm.get();
    }
    return nullptr;
  }

  GemmShape shape_;
  GemmHalfPlaces places_;
  std::vector<Product> products_;
};

}  // namespace

std::unique_ptr<Gemm> make_gemm_half(const GemmShape& shape, DType out) {
  if (out == DType::f16) return std::make_unique<GemmHalf<f16>>(shape);
  if (out == DType::f32) return std::make_unique<GemmHalf<float>>(shape);
  fail("matrix product: no kernel for {} -> {}; use fp16 or fp32 sums", name_of(DType::f16), name_of(out));
}

}  // namespace ztrain::kernels
