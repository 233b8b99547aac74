#include "kernels/norm/norm_launch.hpp"
#include "kernels/norm/rmsnorm.hpp"

namespace ztrain::kernels {

template <class T>
void rmsnorm_forward(Exec& exec, Matrix<const T> x, Vector<const T> weight, double eps, Matrix<T> y,
                     Vector<acc_t<T>> rstd, bool one_plus) {
  check_forward(x, weight, y, rstd.count);
  const NormArrays<T> a{x.data, nullptr,   weight.data, nullptr,
                        y.data, rstd.data, x.cols,      static_cast<acc_t<T>>(eps)};
  if (one_plus)
    forward<NormForm::one_plus, false, T>(exec, a, x.rows);
  else
    forward<NormForm::plain, false, T>(exec, a, x.rows);
}

template <class T>
void add_rmsnorm_forward(Exec& exec, Matrix<const T> a, Matrix<const T> b, Vector<const T> weight, double eps,
                         Matrix<T> r, Matrix<T> y, Vector<acc_t<T>> rstd, bool one_plus) {
  check_forward<T>(a, weight, y, rstd.count);
  REQUIRE(b.rows == a.rows && b.cols == a.cols && r.rows == a.rows && r.cols == a.cols,
          "add_rmsnorm: a is [{}, {}], but b is [{}, {}], r [{}, {}]", a.rows, a.cols, b.rows, b.cols, r.rows,
          r.cols);
  const NormArrays<T> arrays{a.data, b.data,    weight.data, r.data,
                             y.data, rstd.data, a.cols,      static_cast<acc_t<T>>(eps)};
  if (one_plus)
    forward<NormForm::one_plus, true, T>(exec, arrays, a.rows);
  else
    forward<NormForm::plain, true, T>(exec, arrays, a.rows);
}

template <class T, class G>
void rmsnorm_backward(Exec& exec, Matrix<const T> x, Vector<const T> weight, Vector<const acc_t<T>> rstd,
                      Matrix<const T> dy, Matrix<const T> addend, Matrix<T> dx, Vector<G> dweight,
                      bool accumulate, void* workspace, bool one_plus) {
  check_backward(x, weight, rstd.count, dy, dx, dweight);
  const NormGradientArrays<T> a{x.data,      weight.data, rstd.data, dy.data,
                                addend.data, dx.data,     x.rows,    x.cols};
  if (one_plus)
    backward_and_combine<NormForm::one_plus, T, G>(exec, a, dweight, accumulate, workspace);
  else
    backward_and_combine<NormForm::plain, T, G>(exec, a, dweight, accumulate, workspace);
}

ZTRAIN_INSTANCES(rmsnorm_forward)
ZTRAIN_INSTANCES(add_rmsnorm_forward)
ZTRAIN_GRADIENT_INSTANCES(rmsnorm_backward)

}  // namespace ztrain::kernels
