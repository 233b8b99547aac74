#include "engine/dispatch.hpp"
#include "kernels/elementwise/copies.hpp"
#include "kernels/experts/balance.hpp"
#include "kernels/experts/record.hpp"
#include "kernels/experts/routing.hpp"
#include "kernels/experts/rows.hpp"
#include "kernels/gemm/gemm.hpp"

namespace ztrain::engine {
namespace {

/// Returns a view of an input that an op may lack; without it the view has no data.
template <class T>
Vector<const T> optional_vector(const Binding& b, std::size_t i) {
  return i < b.op.inputs.size() ? in_vector<T>(b, i) : Vector<const T>{};
}

Bound bind_router_logits(const Binding& b) {
  using Op = RouterLogits;
  const program::Tensor &x = b.in(Op::x), &logits = b.out(Op::logits);
  std::shared_ptr<kernels::Gemm> gemm = kernels::make_gemm(
      {.trans_b = true, .m = x.shape[0], .n = logits.shape[1], .k = x.shape[1]}, x.dtype, logits.dtype);
  gemm->prepare(b.exec);
  return with_type(x.dtype, [&]<class T>() {
    const auto bias = optional_vector<T>(b, Op::bias);
    const auto product = [&exec = b.exec, gemm, x = b.input<T>(Op::x), weight = b.input<T>(Op::weight), bias,
                          logits = out_matrix<acc_t<T>>(b, Op::logits),
                          workspace = b.output<std::byte>(b.op.outputs.size() - 1)] {
      gemm->run(exec, x, weight, nullptr, logits.data, workspace);
      if (bias.data != nullptr) kernels::add_router_bias<T>(exec, bias, logits);
    };
    return with_notes({product}, product_notes(b, *gemm));
  });
}

kernels::RouteOptions route_options(const Routing& r) {
  return {r.top_k,     kernels::router_score(r.score),
          r.normalise, r.group_score == "top2",
          r.balanced,  r.scale,
          r.groups,    r.top_groups};
}

Bound bind_route(const Binding& b) {
  using Op = Route;
  return with_sum_type(b.in(Op::logits).dtype, [&]<class A>() {
    return launch(b, kernels::route<A>, route_options(b.record<Op>()), in_matrix<A>(b, Op::logits),
                  optional_vector<A>(b, Op::bias), out_matrix<A>(b, Op::weights),
                  out_matrix<std::int32_t>(b, Op::experts));
  });
}

Bound bind_route_grad(const Binding& b) {
  using Op = RouteGrad;
  return with_sum_type(b.in(Op::logits).dtype, [&]<class A>() {
    return launch(b, kernels::route_backward<A>, route_options(b.record<Op>()), in_matrix<A>(b, Op::dweights),
                  in_matrix<A>(b, Op::logits), in_matrix<std::int32_t>(b, Op::experts),
                  out_matrix<A>(b, Op::dlogits));
  });
}

Bound bind_sort_by_expert(const Binding& b) {
  using Op = SortByExpert;
  return launch(b, kernels::sort_by_expert, in_vector<std::int32_t>(b, Op::experts),
                out_vector<std::int32_t>(b, Op::slots), out_vector<std::int32_t>(b, Op::offsets),
                b.output<std::byte>(Op::workspace));
}

Bound bind_permute(const Binding& b) {
  using Op = Permute;
  return with_type(b.in(Op::x).dtype, [&]<class T>() {
    return launch(b, kernels::permute<T>, in_matrix<T>(b, Op::x), in_matrix<std::int32_t>(b, Op::slots),
                  out_matrix<T>(b, Op::rows));
  });
}

Bound bind_permute_grad(const Binding& b) {
  using Op = PermuteGrad;
  return with_type(b.in(Op::drows).dtype, [&]<class T>() {
    return launch(b, kernels::permute_backward<T>, in_matrix<T>(b, Op::drows),
                  in_matrix<std::int32_t>(b, Op::slots), out_matrix<T>(b, Op::dx), accumulates(b));
  });
}

Bound bind_combine(const Binding& b) {
  using Op = Combine;
  return with_type(b.in(Op::rows).dtype, [&]<class T>() {
    return launch(b, kernels::combine<T>, in_matrix<T>(b, Op::rows), in_matrix<std::int32_t>(b, Op::slots),
                  in_matrix<acc_t<T>>(b, Op::weights), out_matrix<T>(b, Op::y));
  });
}

Bound bind_combine_grad(const Binding& b) {
  using Op = CombineGrad;
  return with_type(b.in(Op::dy).dtype, [&]<class T>() {
    return launch(b, kernels::combine_backward<T>, in_matrix<T>(b, Op::dy), in_matrix<T>(b, Op::rows),
                  in_matrix<std::int32_t>(b, Op::slots), in_matrix<acc_t<T>>(b, Op::weights),
                  out_matrix<T>(b, Op::drows), out_matrix<acc_t<T>>(b, Op::dweights));
  });
}

Bound bind_gate_rows(const Binding& b) {
  using Op = GateRows;
  return with_type(b.in(Op::x).dtype, [&]<class T>() {
    return launch(b, kernels::gate_tokens<T>, in_matrix<T>(b, Op::x), in_vector<T>(b, Op::gate),
                  out_matrix<T>(b, Op::y));
  });
}

Bound bind_gate_rows_grad(const Binding& b) {
  using Op = GateRowsGrad;
  return with_type(b.in(Op::dy).dtype, [&]<class T>() {
    return launch(b, kernels::gate_tokens_backward<T>, in_matrix<T>(b, Op::dy), in_matrix<T>(b, Op::x),
                  in_vector<T>(b, Op::gate), out_matrix<T>(b, Op::dx), out_vector<T>(b, Op::dgate));
  });
}

/// Returns the rows without the last ones, which are padding.
template <class M>
M without_padding(const M& rows, std::int64_t padding) {
  return rows_of(rows, 0, rows.rows - padding);
}

Bound bind_router_sums(const Binding& b) {
  using Op = RouterSums;
  const auto record = b.record<Op>();
  return with_sum_type(b.in(Op::logits).dtype, [&]<class A>() {
    const auto logits = without_padding(in_matrix<A>(b, Op::logits), record.padding);
    const Vector<const float> weights{b.input<float>(Op::weights) + record.first_weight, logits.rows};
    return launch(b, kernels::router_sums<A>, kernels::router_score(record.score), logits,
                  without_padding(in_matrix<std::int32_t>(b, Op::experts), record.padding), weights,
                  out_vector<A>(b, Op::sums), b.output<std::byte>(Op::workspace));
  });
}

Bound bind_router_sums_grad(const Binding& b) {
  using Op = RouterSumsGrad;
  const auto record = b.record<Op>();
  const kernels::RouterScore score = kernels::router_score(record.score);
  return with_sum_type(b.in(Op::logits).dtype, [&]<class A>() -> Bound {
    const auto logits = without_padding(in_matrix<A>(b, Op::logits), record.padding);
    const Matrix<A> all = out_matrix<A>(b, Op::dlogits), dlogits = without_padding(all, record.padding);
    return {[&exec = b.exec, score, dsums = in_vector<A>(b, Op::dsums), logits, dlogits, all] {
      kernels::router_sums_backward<A>(exec, score, dsums, logits, dlogits);
      kernels::zero(exec, all.data + dlogits.rows * all.cols,
                    (all.rows - dlogits.rows) * all.cols * static_cast<std::int64_t>(sizeof(A)));
    }};
  });
}

kernels::BalanceCoefficients coefficients(const BalanceConstants& c) {
  return {c.layers, c.balance, c.z};
}

Bound bind_own_sums(const Binding& b) {
  return launch(b, kernels::copy, b.input<std::byte>(OwnSums::x), b.output<std::byte>(OwnSums::y),
                b.in(OwnSums::x).bytes());
}

template <class Op, class A>
kernels::BalanceSums<A> balance_sums(const Binding& b) {
  return {in_vector<A>(b, Op::sums), in_vector<A>(b, b.op.inputs.size() > Op::all ? Op::all : Op::sums)};
}

Bound bind_balance_loss(const Binding& b) {
  using Op = BalanceLoss;
  return with_sum_type(b.in(Op::sums).dtype, [&]<class A>() {
    return launch(b, kernels::balance_loss<A>, coefficients(b.record<Op>()), balance_sums<Op, A>(b),
                  out_vector<double>(b, Op::losses));
  });
}

Bound bind_balance_loss_grad(const Binding& b) {
  using Op = BalanceLossGrad;
  return with_sum_type(b.in(Op::sums).dtype, [&]<class A>() {
    return launch(b, kernels::balance_loss_with_gradient<A>, coefficients(b.record<Op>()),
                  balance_sums<Op, A>(b), b.input<StepScalars>(Op::scalars),
                  out_vector<double>(b, Op::losses), out_vector<A>(b, Op::dsums));
  });
}

}  // namespace

std::span<const KernelRow> experts_kernels() {
  static constexpr KernelRow rows[] = {
      {RouterLogits::op, bind_router_logits, By::library},
      {Route::op, bind_route},
      {RouteGrad::op, bind_route_grad},
      {SortByExpert::op, bind_sort_by_expert},
      {Permute::op, bind_permute},
      {PermuteGrad::op, bind_permute_grad},
      {Combine::op, bind_combine},
      {CombineGrad::op, bind_combine_grad},
      {GateRows::op, bind_gate_rows},
      {GateRowsGrad::op, bind_gate_rows_grad},
      {RouterSums::op, bind_router_sums},
      {RouterSumsGrad::op, bind_router_sums_grad},
      {OwnSums::op, bind_own_sums},
      {BalanceLoss::op, bind_balance_loss},
      {BalanceLossGrad::op, bind_balance_loss_grad},
  };
  return rows;
}

}  // namespace ztrain::engine
