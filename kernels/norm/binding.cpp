#include "engine/dispatch.hpp"
#include "kernels/norm/record.hpp"
#include "kernels/norm/rmsnorm.hpp"

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
                  out_vector<acc_t<T>>(b, Op::rstd));
  });
}

Bound bind_add_rmsnorm(const Binding& b) {
  using Op = AddRmsNorm;
  return with_type(b.out(0).dtype, [&]<class T>() {
    return launch(b, kernels::add_rmsnorm_forward<T>, in_matrix<T>(b, Op::x), in_matrix<T>(b, Op::addend),
                  in_vector<T>(b, Op::weight), b.record<Op>().eps, out_matrix<T>(b, Op::sum),
                  out_matrix<T>(b, Op::y), out_vector<acc_t<T>>(b, Op::rstd));
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
                  accumulates(b), b.output<std::byte>(Op::workspace));
  });
}

}  // namespace

std::span<const KernelRow> norm_kernels() {
  static constexpr KernelRow rows[] = {
      {RmsNorm::op, bind_rmsnorm},
      {AddRmsNorm::op, bind_add_rmsnorm},
      {RmsNormGrad::op, bind_rmsnorm_grad},
  };
  return rows;
}

}  // namespace ztrain::engine
