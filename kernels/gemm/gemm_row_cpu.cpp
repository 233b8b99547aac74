#include "kernels/gemm/gemm_ways.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernel_interface/with_type.hpp"
#include "kernels/gemm/gemm_ragged.hpp"
#include "kernels/launch/rows.hpp"
#include "kernels/launch/tile.hpp"

namespace ztrain::kernels {
namespace {

constexpr int row_block = 64;      ///< rows of W that share the widened part of x
constexpr int depth_block = 2048;  ///< elements of that part
constexpr int depth_quantum = 64;  ///< summed side by side

template <class T>
struct Arguments {
  std::int64_t n, k, ldb;
  const T* x;
  const T* w;
  const T* bias;
  T* y;
};

/// Of depth_quantum elements; adds their products to sums kept side by side.
template <class T, class A>
void multiply_add(const T* __restrict w, const A* __restrict x, tile::Pack<A>* sum) {
  constexpr int width = tile::pack_width<A>;
  alignas(64) A wide[depth_quantum];
  for (int i = 0; i < depth_quantum; ++i) wide[i] = static_cast<A>(w[i]);
#pragma GCC unroll 16
  for (int i = 0; i < depth_quantum / width; ++i)
    sum[i] += *reinterpret_cast<const tile::Pack<A>*>(wide + i * width) *
              *reinterpret_cast<const tile::Pack<A>*>(x + i * width);
}

template <class T, class A>
A dot(const T* __restrict w, const A* __restrict x, int depth) {
  constexpr int width = tile::pack_width<A>, packs = depth_quantum / width;
  tile::Pack<A> sum[packs] = {};
  int d = 0;
  for (; d + depth_quantum <= depth; d += depth_quantum) multiply_add(w + d, x + d, sum);
  for (int i = 1; i < packs; ++i) sum[0] += sum[i];
  A total = 0;
  for (int j = 0; j < width; ++j) total += sum[0][j];
  for (; d < depth; ++d) total += static_cast<A>(w[d]) * x[d];
  return total;
}

/// Outputs [j0, j0 + rows).
template <class T>
void multiply(const Arguments<T>& a, std::int64_t j0, int rows) {
  using A = acc_t<T>;
  alignas(64) A x[depth_block];
  A sum[row_block] = {};
  for (std::int64_t d0 = 0; d0 < a.k; d0 += depth_block) {
    const int depth = static_cast<int>(std::min<std::int64_t>(depth_block, a.k - d0));
    for (int d = 0; d < depth; ++d) x[d] = static_cast<A>(a.x[d0 + d]);
    for (int j = 0; j < rows; ++j) sum[j] += dot(a.w + (j0 + j) * a.ldb + d0, x, depth);
  }
  for (int j = 0; j < rows; ++j) {
    if (a.bias) sum[j] += static_cast<A>(a.bias[j0 + j]);
    a.y[j0 + j] = static_cast<T>(sum[j]);
  }
}

template <class T>
class GemmRow : public Gemm {
 public:
  explicit GemmRow(const GemmShape& shape) : shape_(shape) {}

  void run(Exec& exec, const void* x, const void* w, const void* bias, void* y, void*) override {
    const Arguments<T> a{shape_.n,
                         shape_.k,
                         shape_.ldb,
                         static_cast<const T*>(x),
                         static_cast<const T*>(w),
                         shape_.bias ? static_cast<const T*>(bias) : nullptr,
                         static_cast<T*>(y)};
    for_rows(exec, ceil_div(a.n, row_block), [a](std::int64_t i) {
      const std::int64_t j0 = i * row_block;
      multiply(a, j0, static_cast<int>(std::min<std::int64_t>(row_block, a.n - j0)));
    });
  }

  std::string implementation() const override { return "dot products of one row"; }

 private:
  GemmShape shape_;
};

}  // namespace

void multiply_row(Exec& exec, const GemmShape& s, DType type, const GemmOperands& o) {
  with_type(type, [&]<class T>() { GemmRow<T>(s).run(exec, o.a, o.b, o.bias, o.c, o.workspace); });
}

std::unique_ptr<Gemm> make_gemm_row(const GemmShape& shape, DType in, DType out) {
  const GemmShape s = complete(shape);
  REQUIRE(is_row_product(s, in, out), "matrix product {} x {} x {}, {} -> {}: not that of one row", s.m, s.n,
          s.k, name_of(in), name_of(out));
  return with_type(in, [&]<class T>() -> std::unique_ptr<Gemm> { return std::make_unique<GemmRow<T>>(s); });
}

}  // namespace ztrain::kernels
