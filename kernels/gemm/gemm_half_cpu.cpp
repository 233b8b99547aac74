#include "kernels/gemm/gemm_ways.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "kernels/launch/rows.hpp"
#include "kernels/launch/wide.hpp"

namespace ztrain::kernels {
namespace {

/// Rows [row, row + rows) and columns [col, col + cols) of a row-major matrix.
struct Window {
  std::int64_t row, rows, col, cols, stride;
  bool operator==(const Window&) const = default;
};

/// The window's elements, as rows that begin `stride` elements apart.
template <class T>
void widen_window(Exec& exec, const T* matrix, const Window& w, float* to, std::int64_t stride) {
  const T* from = matrix + w.row * w.stride + w.col;
  for_rows(exec, w.rows, [=](std::int64_t i) { widen(from + i * w.stride, to + i * stride, w.cols); });
}

template <class T>
void add_row(const float* __restrict from, T* __restrict to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = T(from[i] + static_cast<float>(to[i]));
}

/// The reverse, from rows without a gap; adds: to what is there.
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
void for_panels(const GemmShape& s, F&& f) {
  constexpr std::int64_t rows = gemm_panel_rows, cols = gemm_panel_cols, depth = gemm_panel_depth;
  for (std::int64_t j0 = 0; j0 < s.n; j0 += cols)
    for (std::int64_t i0 = 0; i0 < s.m; i0 += rows)
      for (std::int64_t d0 = 0; d0 < s.k; d0 += depth)
        f(Panel{i0, std::min(rows, s.m - i0), j0, std::min(cols, s.n - j0), d0, std::min(depth, s.k - d0)});
}

/// Row stride of a widened panel of so many columns.
std::int64_t panel_stride(std::int64_t cols) {
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

template <class In, class Out>
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
                        .lda = panel_stride(shape_.trans_a ? p.m : p.k),
                        .ldb = panel_stride(shape_.trans_b ? p.k : p.n),
                        .ldc = in_place ? shape_.ldc : p.n,
                        .accumulate = p.d0 > 0 || (in_place && shape_.accumulate),
                        .bias = p.d0 == 0 && shape_.bias};
      products_.push_back({p, make_gemm(s, DType::f32, DType::f32)});
    });
  }

  void prepare(Exec& exec, Starts starts) override {
    for (const Product& product : products_) product.gemm->prepare(exec, starts);
  }

  void run(Exec& exec, const void* a, const void* b, const void* bias, void* c, void* workspace) override {
    auto* const base = static_cast<std::byte*>(workspace);
    const auto at = [&](std::int64_t offset) { return reinterpret_cast<float*>(base + offset); };
    Widened<In> left(a, at(places_.a)), right(b, at(places_.b));
    float* const row = at(places_.bias);
    auto* const out = static_cast<Out*>(c);
    for_panels(shape_, [&](const Panel& p) {
      const float* x = left.window(exec, shape_.trans_a, {p.i0, p.m, p.d0, p.k, shape_.lda});
      const float* y = right.window(exec, shape_.trans_b, {p.d0, p.k, p.j0, p.n, shape_.ldb});
      if (shape_.bias) widen_window(exec, static_cast<const In*>(bias), {0, 1, p.j0, p.n, 0}, row, p.n);
      float* sums = at(places_.c);
      if constexpr (in_place) sums = out + p.i0 * shape_.ldc + p.j0;
      find(p)->run(exec, x, y, row, sums, workspace);
      if constexpr (!in_place)
        if (p.d0 + p.k == shape_.k)
          narrow_window(exec, sums, {p.i0, p.m, p.j0, p.n, shape_.ldc}, out, shape_.accumulate);
    });
  }

  std::string implementation() const override {
    return fmt::format("{} through fp32 panels, {}", name_of(dtype_of<In>()),
                       products_.front().gemm->implementation());
  }

 private:
  /// fp32 sums are formed where they belong.
  static constexpr bool in_place = std::is_same_v<Out, float>;

  struct Product {
    Panel like;  ///< the first panel that it serves
    std::unique_ptr<Gemm> gemm;
  };

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

std::unique_ptr<Gemm> make_gemm_half(const GemmShape& shape, DType in, DType out) {
  if (in == DType::bf16 && out == DType::bf16) return std::make_unique<GemmHalf<bf16, bf16>>(shape);
  if (in == DType::bf16 && out == DType::f32) return std::make_unique<GemmHalf<bf16, float>>(shape);
  if (in == DType::f16 && out == DType::f16) return std::make_unique<GemmHalf<f16, f16>>(shape);
  if (in == DType::f16 && out == DType::f32) return std::make_unique<GemmHalf<f16, float>>(shape);
  fail("matrix product: no kernel for {} -> {}; use sums of the same type or of fp32", name_of(in),
       name_of(out));
}

}  // namespace ztrain::kernels
