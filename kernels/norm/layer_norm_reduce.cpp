#include "kernels/norm/layer_norm.hpp"
#include "kernels/norm/norm_launch.hpp"

namespace ztrain::kernels {

template <class T>
void layer_norm_forward(Exec& exec, Matrix<const T> x, Vector<const T> weight, Vector<const T> bias,
                        double eps, Matrix<T> y, Vector<acc_t<T>> mean, Vector<acc_t<T>> rstd) {
  check_forward(x, weight, y, rstd.count);
  REQUIRE(bias.count == x.cols && mean.count == x.rows, "layer_norm: x is [{}, {}], bias [{}], mean [{}]",
          x.rows, x.cols, bias.count, mean.count);
  NormArrays<T> a{x.data, nullptr,   weight.data, nullptr,
                  y.data, rstd.data, x.cols,      static_cast<acc_t<T>>(eps)};
  a.bias = bias.data;
  a.mean = mean.data;
  forward<NormForm::centred, false, T>(exec, a, x.rows);
}

template <class T, class G>
void layer_norm_backward(Exec& exec, Matrix<const T> x, Vector<const T> weight, Vector<const acc_t<T>> mean,
                         Vector<const acc_t<T>> rstd, Matrix<const T> dy, Matrix<const T> addend,
                         Matrix<T> dx, Vector<G> dweight, bool accumulate, void* workspace) {
  check_backward(x, weight, rstd.count, dy, dx, dweight);
  REQUIRE(mean.count == x.rows, "layer_norm backward: x is [{}, {}], mean [{}]", x.rows, x.cols, mean.count);
  NormGradientArrays<T> a{x.data, weight.data, rstd.data, dy.data, addend.data, dx.data, x.rows, x.cols};
  a.mean = mean.data;
  backward_and_combine<NormForm::centred, T, G>(exec, a, dweight, accumulate, workspace);
}

ZTRAIN_INSTANCES(layer_norm_forward)
ZTRAIN_GRADIENT_INSTANCES(layer_norm_backward)

}  // namespace ztrain::kernels
