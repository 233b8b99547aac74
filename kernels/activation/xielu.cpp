#include "kernels/activation/xielu.hpp"

#include "base/error.hpp"
#include "kernels/activation/xielu_rows.hpp"
#include "kernels/launch/pieces.hpp"

namespace ztrain::kernels {

template <class T>
void xielu_forward(Exec& exec, const XieluConstants<T>& constants, Matrix<const T> x, Matrix<T> y) {
  REQUIRE(x.rows == y.rows && x.cols == y.cols, "xielu: x is [{}, {}] and y [{}, {}]", x.rows, x.cols, y.rows,
          y.cols);
  // The constants, which cost more than an element, are computed once for a row.
  for_wide_rows(
      exec, x.rows, x.cols, KOKKOS_LAMBDA(const Lanes& lanes, const std::int64_t row) {
        const auto f = XieluFunction<acc_t<T>>::of(constants);
        lanes.each(x.cols, [&](const std::int64_t begin, const std::int64_t length) {
          const RowPiece p{row * x.cols + begin, length};
          xielu_values<T>(p.in(x.data), p.out(y.data), p.n(), f);
          return 0;
        });
      });
}

template <class T, class G>
void xielu_backward(Exec& exec, const XieluConstants<T>& constants, Matrix<const T> x, Matrix<const T> dy,
                    Matrix<T> dx, G* dp, G* dn, bool accumulate, void* workspace) {
  REQUIRE(x.rows == dx.rows && x.cols == dx.cols && dy.rows == dx.rows && dy.cols == dx.cols,
          "xielu backward: x is [{}, {}], dy [{}, {}] and dx [{}, {}]", x.rows, x.cols, dy.rows, dy.cols,
          dx.rows, dx.cols);
  auto* const sums = static_cast<double*>(workspace);
  for_shared_rows(exec, x.rows, 256, XieluRow<T>{constants, x.data, dy.data, dx.data, x.cols, sums});
  for_shared_rows(exec, 1, 256, XieluAlphas<T, G>{constants, sums, x.rows, accumulate, dp, dn});
}

ZTRAIN_INSTANCES(xielu_forward)
ZTRAIN_GRADIENT_INSTANCES(xielu_backward)

}  // namespace ztrain::kernels
