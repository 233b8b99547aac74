#include <cmath>

#include "base/error.hpp"
#include "base/kernel_workspace.hpp"
#include "kernels/rmsnorm.hpp"
#include "kernels/rows.hpp"

namespace ztrain::kernels {
namespace {

// The row functions are not inlined: where sums may be reordered, two inlined copies may order them
// differently, and the fused forward would then differ from the plain one in the last bit.

template <class T>
[[gnu::noinline]] KOKKOS_FUNCTION acc_t<T> row_rstd(const T* __restrict x, std::int64_t d, acc_t<T> eps) {
  acc_t<T> sum = 0;
  for (std::int64_t i = 0; i < d; ++i) sum += load(x[i]) * load(x[i]);
  return acc_t<T>(1) / std::sqrt(sum / static_cast<acc_t<T>>(d) + eps);
}

template <class T>
[[gnu::noinline]] KOKKOS_FUNCTION void scale_row(const T* __restrict x, const T* __restrict weight,
                                                 acc_t<T> rstd, T* __restrict y, std::int64_t d) {
  for (std::int64_t i = 0; i < d; ++i) y[i] = static_cast<T>(load(x[i]) * rstd * load(weight[i]));
}

/// r may be a or b: each element is read before it is written, so the loop carries no dependence, which the
/// pragma tells the compiler.
template <class T>
KOKKOS_INLINE_FUNCTION void sum_row(const T* a, const T* b, T* r, std::int64_t d) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < d; ++i) r[i] = static_cast<T>(load(a[i]) + load(b[i]));
}

/// sum of dy * weight * x, the projection of the gradient on the row.
template <class T>
[[gnu::noinline]] KOKKOS_FUNCTION acc_t<T> row_projection(const T* __restrict x, const T* __restrict weight,
                                                          const T* __restrict dy, std::int64_t d) {
  acc_t<T> sum = 0;
  for (std::int64_t i = 0; i < d; ++i) sum += load(dy[i]) * load(weight[i]) * load(x[i]);
  return sum;
}

/// dx may be dy or addend, as above; partial never overlaps the others.
template <bool with_addend, class T>
KOKKOS_INLINE_FUNCTION void backward_row(const T* __restrict x, const T* __restrict weight, const T* dy,
                                         const T* addend, acc_t<T> rstd, acc_t<T> projection, T* dx,
                                         acc_t<T>* __restrict partial, std::int64_t d) {
  const acc_t<T> along = projection * rstd * rstd * rstd / static_cast<acc_t<T>>(d);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < d; ++i) {
    const acc_t<T> gradient = load(dy[i]);
    const acc_t<T> value = load(x[i]);
    acc_t<T> result = gradient * load(weight[i]) * rstd - value * along;
    if constexpr (with_addend) result += load(addend[i]);
    partial[i] += gradient * value * rstd;
    dx[i] = static_cast<T>(result);
  }
}

template <bool with_addend, class T>
void backward_rows(Exec& exec, Matrix<const T> x, Vector<const T> weight, Vector<const acc_t<T>> rstd,
                   Matrix<const T> dy, Matrix<const T> addend, Matrix<T> dx, acc_t<T>* partials) {
  const std::int64_t d = x.cols, rows = x.rows, height = rmsnorm_rows_per_block(rows);
  for_rows(
      exec, ceil_div(rows, height), KOKKOS_LAMBDA(const std::int64_t block) {
        acc_t<T>* const partial = partials + block * d;
        for (std::int64_t i = 0; i < d; ++i) partial[i] = 0;
        const std::int64_t end = (block + 1) * height < rows ? (block + 1) * height : rows;
        for (std::int64_t row = block * height; row < end; ++row) {
          const std::int64_t at = row * d;
          const acc_t<T> projection = row_projection<T>(x.data + at, weight.data, dy.data + at, d);
          backward_row<with_addend, T>(x.data + at, weight.data, dy.data + at,
                                       addend.data + (with_addend ? at : 0), rstd.data[row], projection,
                                       dx.data + at, partial, d);
        }
      });
}

template <class A, class G>
void combine_partials(Exec& exec, const A* partials, std::int64_t blocks, Vector<G> dweight,
                      bool accumulate) {
  const std::int64_t d = dweight.count;
  for_blocks(
      exec, d, KOKKOS_LAMBDA(const std::int64_t begin, const std::int64_t length) {
        A sum[quantum] = {};
        for (std::int64_t block = 0; block < blocks; ++block) {
          for (std::int64_t i = 0; i < length; ++i) sum[i] += partials[block * d + begin + i];
        }
        G* const out = dweight.data + begin;
        for (std::int64_t i = 0; i < length; ++i) {
          out[i] = static_cast<G>(accumulate ? static_cast<A>(out[i]) + sum[i] : sum[i]);
        }
      });
}

template <class T>
void check_forward(Matrix<const T> x, Vector<const T> weight, Matrix<T> y, Vector<acc_t<T>> rstd) {
  REQUIRE(y.rows == x.rows && y.cols == x.cols && weight.count == x.cols && rstd.count == x.rows,
          "rmsnorm: x is [{}, {}], but y is [{}, {}], weight [{}], rstd [{}]", x.rows, x.cols, y.rows, y.cols,
          weight.count, rstd.count);
}

}  // namespace

template <class T>
void rmsnorm_forward(Exec& exec, Matrix<const T> x, Vector<const T> weight, double eps, Matrix<T> y,
                     Vector<acc_t<T>> rstd) {
  check_forward(x, weight, y, rstd);
  const std::int64_t d = x.cols;
  for_rows(
      exec, x.rows, KOKKOS_LAMBDA(const std::int64_t row) {
        const acc_t<T> scale = row_rstd<T>(x.data + row * d, d, static_cast<acc_t<T>>(eps));
        rstd.data[row] = scale;
        scale_row<T>(x.data + row * d, weight.data, scale, y.data + row * d, d);
      });
}

template <class T>
void add_rmsnorm_forward(Exec& exec, Matrix<const T> a, Matrix<const T> b, Vector<const T> weight, double eps,
                         Matrix<T> r, Matrix<T> y, Vector<acc_t<T>> rstd) {
  check_forward<T>(a, weight, y, rstd);
  REQUIRE(b.rows == a.rows && b.cols == a.cols && r.rows == a.rows && r.cols == a.cols,
          "add_rmsnorm: a is [{}, {}], but b is [{}, {}], r [{}, {}]", a.rows, a.cols, b.rows, b.cols, r.rows,
          r.cols);
  const std::int64_t d = a.cols;
  for_rows(
      exec, a.rows, KOKKOS_LAMBDA(const std::int64_t row) {
        T* const sum = r.data + row * d;
        sum_row<T>(a.data + row * d, b.data + row * d, sum, d);
        const acc_t<T> scale = row_rstd<T>(sum, d, static_cast<acc_t<T>>(eps));
        rstd.data[row] = scale;
        scale_row<T>(sum, weight.data, scale, y.data + row * d, d);
      });
}

template <class T, class G>
void rmsnorm_backward(Exec& exec, Matrix<const T> x, Vector<const T> weight, Vector<const acc_t<T>> rstd,
                      Matrix<const T> dy, Matrix<const T> addend, Matrix<T> dx, Vector<G> dweight,
                      bool accumulate, void* workspace) {
  REQUIRE(dy.rows == x.rows && dy.cols == x.cols && dx.rows == x.rows && dx.cols == x.cols &&
              rstd.count == x.rows && weight.count == x.cols && dweight.count == x.cols,
          "rmsnorm backward: x is [{}, {}], but dy is [{}, {}], dx [{}, {}], rstd [{}], weight [{}], dweight "
          "[{}]",
          x.rows, x.cols, dy.rows, dy.cols, dx.rows, dx.cols, rstd.count, weight.count, dweight.count);
  auto* const partials = static_cast<acc_t<T>*>(workspace);
  if (addend.data) {
    backward_rows<true, T>(exec, x, weight, rstd, dy, addend, dx, partials);
  } else {
    backward_rows<false, T>(exec, x, weight, rstd, dy, addend, dx, partials);
  }
  const std::int64_t blocks = ceil_div(x.rows, rmsnorm_rows_per_block(x.rows));
  combine_partials<acc_t<T>, G>(exec, partials, blocks, dweight, accumulate);
}

#define ZTRAIN_FORWARD(T)                                                                                \
  template void rmsnorm_forward<T>(Exec&, Matrix<const T>, Vector<const T>, double, Matrix<T>,           \
                                   Vector<acc_t<T>>);                                                    \
  template void add_rmsnorm_forward<T>(Exec&, Matrix<const T>, Matrix<const T>, Vector<const T>, double, \
                                       Matrix<T>, Matrix<T>, Vector<acc_t<T>>);
ZTRAIN_FORWARD(float)
ZTRAIN_FORWARD(bf16)
ZTRAIN_FORWARD(f16)
ZTRAIN_FORWARD(double)
#undef ZTRAIN_FORWARD

#define ZTRAIN_BACKWARD(T, G)                                                                           \
  template void rmsnorm_backward<T, G>(Exec&, Matrix<const T>, Vector<const T>, Vector<const acc_t<T>>, \
                                       Matrix<const T>, Matrix<const T>, Matrix<T>, Vector<G>, bool, void*);
ZTRAIN_BACKWARD(float, float)
ZTRAIN_BACKWARD(bf16, float)
ZTRAIN_BACKWARD(bf16, bf16)
ZTRAIN_BACKWARD(f16, float)
ZTRAIN_BACKWARD(f16, f16)
ZTRAIN_BACKWARD(double, double)
#undef ZTRAIN_BACKWARD

}  // namespace ztrain::kernels
