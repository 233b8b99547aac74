#include "kernels/launch/pieces.hpp"
#include "kernels/norm/norm_launch.hpp"
#include "kernels/norm/wide_norm.hpp"

namespace ztrain::kernels {
namespace {

template <class T>
struct RowSquares {
  const T* x;
  std::int64_t first, d;
  acc_t<T>* squares;

  void operator()(std::int64_t row) const {
    squares[row] = squares_of_row<T>(x + row * d + first, d - first);
  }
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t row) const {
    const acc_t<T> sum = row_squares_by<false>(threads, x + row * d + first, d - first);
    if (threads.rank() == 0) squares[row] = sum;
  }
};

/// skip: how many of the n elements get 0.
template <class T>
KOKKOS_INLINE_FUNCTION void multiply_row(const T* __restrict x, acc_t<T> factor, std::int64_t skip,
                                         T* __restrict dx, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) dx[i] = static_cast<T>(i < skip ? acc_t<T>(0) : load(x[i]) * factor);
}

}  // namespace

template <class T>
void row_squares(Exec& exec, Matrix<const T> x, std::int64_t first, Vector<acc_t<T>> squares) {
  REQUIRE(squares.count == x.rows && first >= 0 && first <= x.cols,
          "row_squares: x is [{}, {}], squares [{}], the first column {}", x.rows, x.cols, squares.count,
          first);
  for_shared_rows(exec, x.rows, threads_for(x.cols, 1), RowSquares<T>{x.data, first, x.cols, squares.data});
}

template <class T>
void row_squares_backward(Exec& exec, Matrix<const T> x, std::int64_t first, Vector<const acc_t<T>> dsquares,
                          Matrix<T> dx) {
  REQUIRE(dsquares.count == x.rows && dx.rows == x.rows && dx.cols == x.cols,
          "row_squares backward: x is [{}, {}], dsquares [{}], dx [{}, {}]", x.rows, x.cols, dsquares.count,
          dx.rows, dx.cols);
  for_row_pieces<pack_of<T>>(
      exec, x.rows, x.cols, KOKKOS_LAMBDA(const std::int64_t row, const PieceOf<T> p) {
        multiply_row<T>(p.in(x.data + row * x.cols), 2 * dsquares.data[row], first - p.begin,
                        p.out(dx.data + row * x.cols), p.n());
      });
}

template <class T>
void rms_scale_forward(Exec& exec, Matrix<const T> x, Vector<const T> weight, Vector<const acc_t<T>> squares,
                       WideRow row, Matrix<T> y) {
  check_forward(x, weight, y, squares.count);
  NormArrays<T> a{x.data, nullptr, weight.data, nullptr,
                  y.data, nullptr, x.cols,      static_cast<acc_t<T>>(row.eps)};
  a.squares = squares.data;
  a.width = static_cast<acc_t<T>>(row.width);
  forward<NormForm::scaled, false, T>(exec, a, x.rows);
}

template <class T, class G>
void rms_scale_backward(Exec& exec, Matrix<const T> x, Vector<const T> weight, Vector<const acc_t<T>> squares,
                        Matrix<const T> dy, WideRow row, Matrix<T> dx, Vector<G> dweight,
                        Vector<acc_t<T>> dsquares, bool accumulate, void* workspace) {
  check_backward(x, weight, squares.count, dy, dx, dweight);
  REQUIRE(dsquares.count == x.rows, "rms_scale backward: x is [{}, {}], dsquares [{}]", x.rows, x.cols,
          dsquares.count);
  NormGradientArrays<T> a{x.data, weight.data, nullptr, dy.data, nullptr, dx.data, x.rows, x.cols};
  a.squares = squares.data;
  a.dsquares = dsquares.data;
  a.eps = static_cast<acc_t<T>>(row.eps);
  a.width = static_cast<acc_t<T>>(row.width);
  backward_and_combine<NormForm::scaled, T, G>(exec, a, dweight, accumulate, workspace);
}

ZTRAIN_INSTANCES(row_squares)
ZTRAIN_INSTANCES(row_squares_backward)
ZTRAIN_INSTANCES(rms_scale_forward)
ZTRAIN_GRADIENT_INSTANCES(rms_scale_backward)

}  // namespace ztrain::kernels
