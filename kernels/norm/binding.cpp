#include "engine/dispatch.hpp"
#include "kernels/norm/layer_norm.hpp"
#include "kernels/norm/record.hpp"
#include "kernels/norm/rmsnorm.hpp"
#include "kernels/norm/wide_norm.hpp"

namespace ztrain::engine {
namespace {

/// The rows of a norm are as wide as its weight: a row of x may hold several.
template <class T>
Matrix<T> norm_rows(Vector<T> x, std::int64_t width) {
  return {x.data, x.count / width, width};
}

Bound bind_rmsnorm(const Binding& b) {
  using Op = RmsNorm;
  return with_type(b.out(0).dtype, [&]<class T>() {
    const auto weight = in_vector<T>(b, Op::weight);
    return launch(b, kernels::rmsnorm_forward<T>, norm_rows(in_vector<T>(b, Op::x), weight.count), weight,
                  b.record<Op>().eps, norm_rows(out_vector<T>(b, Op::y), weight.count),
                  out_vector<acc_t<T>>(b, Op::rstd), b.record<Op>().one_plus);
  });
}

Bound bind_add_rmsnorm(const Binding& b) {
  using Op = AddRmsNorm;
  return with_type(b.out(0).dtype, [&]<class T>() {
    return launch(b, kernels::add_rmsnorm_forward<T>, in_matrix<T>(b, Op::x), in_matrix<T>(b, Op::addend),
                  in_vector<T>(b, Op::weight), b.record<Op>().eps, out_matrix<T>(b, Op::sum),
                  out_matrix<T>(b, Op::y), out_vector<acc_t<T>>(b, Op::rstd), b.record<Op>().one_plus);
  });
}

Bound bind_rmsnorm_grad(const Binding& b) {
  using Op = RmsNormGrad;
  return with_gradient_types(b.out(Op::dx).dtype, b.out(Op::dweight).dtype, [&]<class T, class G>() {
    const auto weight = in_vector<T>(b, Op::weight);
    const auto rows = [&](std::size_t i) { return norm_rows(in_vector<T>(b, i), weight.count); };
    return launch(b, kernels::rmsnorm_backward<T, G>, rows(Op::x), weight, in_vector<acc_t<T>>(b, Op::rstd),
                  rows(Op::dy), b.record<Op>().has_addend ? rows(Op::addend) : Matrix<const T>{},
                  norm_rows(out_vector<T>(b, Op::dx), weight.count), out_vector<G>(b, Op::dweight),
                  accumulates(b), b.output<std::byte>(Op::workspace), b.record<Op>().one_plus);
  });
}

Bound bind_layer_norm(const Binding& b) {
  using Op = LayerNorm;
  return with_type(b.out(Op::y).dtype, [&]<class T>() {
    return launch(b, kernels::layer_norm_forward<T>, in_matrix<T>(b, Op::x), in_vector<T>(b, Op::weight),
                  in_vector<T>(b, Op::bias), b.record<Op>().eps, out_matrix<T>(b, Op::y),
                  out_vector<acc_t<T>>(b, Op::mean), out_vector<acc_t<T>>(b, Op::rstd));
  });
}

Bound bind_layer_norm_grad(const Binding& b) {
  using Op = LayerNormGrad;
  return with_gradient_types(b.out(Op::dx).dtype, b.out(Op::dweight).dtype, [&]<class T, class G>() {
    return launch(b, kernels::layer_norm_backward<T, G>, in_matrix<T>(b, Op::x), in_vector<T>(b, Op::weight),
                  in_vector<acc_t<T>>(b, Op::mean), in_vector<acc_t<T>>(b, Op::rstd), in_matrix<T>(b, Op::dy),
                  b.record<Op>().has_addend ? in_matrix<T>(b, Op::addend) : Matrix<const T>{},
                  out_matrix<T>(b, Op::dx), out_vector<G>(b, Op::dweight), accumulates(b),
                  b.output<std::byte>(Op::workspace));
  });
}

Bound bind_row_squares(const Binding& b) {
  using Op = RowSquares;
  return with_type(b.in(Op::x).dtype, [&]<class T>() {
    return launch(b, kernels::row_squares<T>, in_matrix<T>(b, Op::x), b.record<Op>().first,
                  out_vector<acc_t<T>>(b, Op::y));
  });
}

Bound bind_row_squares_grad(const Binding& b) {
  using Op = RowSquaresGrad;
  return with_type(b.out(Op::dx).dtype, [&]<class T>() {
    return launch(b, kernels::row_squares_backward<T>, in_matrix<T>(b, Op::x), b.record<Op>().first,
                  in_vector<acc_t<T>>(b, Op::dsquares), out_matrix<T>(b, Op::dx));
  });
}

Bound bind_rms_scale(const Binding& b) {
  using Op = RmsScale;
  const auto record = b.record<Op>();
  return with_type(b.out(Op::y).dtype, [&]<class T>() {
    return launch(b, kernels::rms_scale_forward<T>, in_matrix<T>(b, Op::x), in_vector<T>(b, Op::weight),
                  in_vector<acc_t<T>>(b, Op::squares), kernels::WideRow{record.width, record.eps},
                  out_matrix<T>(b, Op::y));
  });
}

Bound bind_rms_scale_grad(const Binding& b) {
  using Op = RmsScaleGrad;
  const auto record = b.record<Op>();
  return with_gradient_types(b.out(Op::dx).dtype, b.out(Op::dweight).dtype, [&]<class T, class G>() {
    return launch(b, kernels::rms_scale_backward<T, G>, in_matrix<T>(b, Op::x), in_vector<T>(b, Op::weight),
                  in_vector<acc_t<T>>(b, Op::squares), in_matrix<T>(b, Op::dy),
                  kernels::WideRow{record.width, record.eps}, out_matrix<T>(b, Op::dx),
                  out_vector<G>(b, Op::dweight), out_vector<acc_t<T>>(b, Op::dsquares), accumulates(b),
                  b.output<std::byte>(Op::workspace));
  });
}

}  // namespace

std::span<const KernelRow> norm_kernels() {
  static constexpr KernelRow rows[] = {
      {RmsNorm::op, bind_rmsnorm},
      {AddRmsNorm::op, bind_add_rmsnorm},
      {RmsNormGrad::op, bind_rmsnorm_grad},
      {LayerNorm::op, bind_layer_norm},
      {LayerNormGrad::op, bind_layer_norm_grad},
      {RowSquares::op, bind_row_squares},
      {RowSquaresGrad::op, bind_row_squares_grad},
      {RmsScale::op, bind_rms_scale},
      {RmsScaleGrad::op, bind_rms_scale_grad},
  };
  return rows;
}

}  // namespace ztrain::engine
