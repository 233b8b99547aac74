#pragma once
// Products of 16-bit matrices through fp32: panels of A and B are widened into the workspace, multiplied
// there, and the sums over all of k rounded once. Included by kernel sources only.

#include <algorithm>
#include <type_traits>
#include <utility>

#include "kernels/gemm/gemm.hpp"
#include "kernels/launch/rows.hpp"
#include "kernels/launch/wide.hpp"

namespace ztrain::kernels::gemm_half {

/// Rows [row, row + rows) and columns [col, col + cols) of a row-major matrix.
struct Window {
  std::int64_t row, rows, col, cols, stride;
  bool operator==(const Window&) const = default;
};

/// Widens the window's elements into rows that begin `stride` elements apart.
template <class T>
void widen_window(Exec& exec, const T* matrix, const Window& w, float* to, std::int64_t stride) {
  const T* from = matrix + w.row * w.stride + w.col;
  for_rows(exec, w.rows, [=](std::int64_t i) { widen(from + i * w.stride, to + i * stride, w.cols); });
}

template <class T>
void add_row(const float* __restrict from, T* __restrict to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = T(from[i] + static_cast<float>(to[i]));
}

/// Narrows rows without a gap into the window, or adds them to its elements.
template <class T>
void narrow_window(Exec& exec, const float* from, const Window& w, T* matrix, bool adds) {
  T* to = matrix + w.row * w.stride + w.col;
  for_rows(exec, w.rows, [=](std::int64_t i) {
    if (adds)
      add_row(from + i * w.cols, to + i * w.stride, w.cols);
    else
      narrow(from + i * w.cols, to + i * w.stride, w.cols);
  });
}

/// C's panel (i0, j0) and the panel of k from d0 on.
struct Panel {
  std::int64_t i0, m, j0, n, d0, k;
};

/// Calls f(Panel) for every panel, those of k innermost. Where k is one panel, all panels of a column share
/// the widened one of B.
template <class F>
void for_panels(const GemmShape& s, const F& f) {
  constexpr std::int64_t rows = gemm_panel_rows, cols = gemm_panel_cols, depth = gemm_panel_depth;
  for (std::int64_t j0 = 0; j0 < s.n; j0 += cols)
    for (std::int64_t i0 = 0; i0 < s.m; i0 += rows)
      for (std::int64_t d0 = 0; d0 < s.k; d0 += depth)
        f(Panel{i0, std::min(rows, s.m - i0), j0, std::min(cols, s.n - j0), d0, std::min(depth, s.k - d0)});
}

/// Returns the row stride of a widened panel of so many columns.
inline std::int64_t panel_stride(std::int64_t cols) {
  return cols + gemm_panel_gap;
}

/// One operand: widens the window that a panel needs, unless it is the one that lies there.
template <class In>
class Widened {
 public:
  Widened(const void* matrix, float* panel) : matrix_(static_cast<const In*>(matrix)), panel_(panel) {}

  const float* window(Exec& exec, bool transposed, Window w) {
    if (transposed) {
      std::swap(w.row, w.col);
      std::swap(w.rows, w.cols);
    }
    if (!(held_ == w)) widen_window(exec, matrix_, w, panel_, panel_stride(w.cols));
    held_ = w;
    return panel_;
  }

 private:
  const In* matrix_;
  float* panel_;
  Window held_{};
};

/// Whether fp32 sums are formed where they belong.
template <class Out>
inline constexpr bool in_place = std::is_same_v<Out, float>;

/// Returns the shape of the product of two widened panels.
template <class Out>
GemmShape product_of(const GemmShape& s, const Panel& p) {
  return {.trans_a = s.trans_a,
          .trans_b = s.trans_b,
          .m = p.m,
          .n = p.n,
          .k = p.k,
          .lda = panel_stride(s.trans_a ? p.m : p.k),
          .ldb = panel_stride(s.trans_b ? p.k : p.n),
          .ldc = in_place<Out> ? s.ldc : p.n,
          .accumulate = p.d0 > 0 || (in_place<Out> && s.accumulate),
          .bias = p.d0 == 0 && s.bias};
}

/// Forms a product in the workspace that gemm_half_places() describes. Calls product(Panel, a, b, bias, c)
/// for each product_of() two panels.
template <class In, class Out, class Product>
void multiply(Exec& exec, const GemmShape& s, const void* a, const void* b, const void* bias, void* c,
              void* workspace, const Product& product) {
  const GemmHalfPlaces places = gemm_half_places(s.m, s.n, s.k, dtype_of<Out>());
  auto* const base = static_cast<std::byte*>(workspace);
  const auto at = [&](std::int64_t offset) { return reinterpret_cast<float*>(base + offset); };
  Widened<In> left(a, at(places.a)), right(b, at(places.b));
  float* const row = at(places.bias);
  auto* const out = static_cast<Out*>(c);
  for_panels(s, [&](const Panel& p) {
    const float* x = left.window(exec, s.trans_a, {p.i0, p.m, p.d0, p.k, s.lda});
    const float* y = right.window(exec, s.trans_b, {p.d0, p.k, p.j0, p.n, s.ldb});
    if (s.bias) widen_window(exec, static_cast<const In*>(bias), {0, 1, p.j0, p.n, 0}, row, p.n);
    float* sums = at(places.c);
    if constexpr (in_place<Out>) sums = out + p.i0 * s.ldc + p.j0;
    product(p, x, y, row, sums);
    if constexpr (!in_place<Out>)
      if (p.d0 + p.k == s.k) narrow_window(exec, sums, {p.i0, p.m, p.j0, p.n, s.ldc}, out, s.accumulate);
  });
}

}  // namespace ztrain::kernels::gemm_half
