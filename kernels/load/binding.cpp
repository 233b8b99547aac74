#include "engine/dispatch.hpp"
#include "kernels/load/load.hpp"
#include "kernels/load/record.hpp"
#include "kernels/step/step_metrics.hpp"

namespace ztrain::engine {
namespace {

Bound bind_expert_counts(const Binding& b) {
  return with_sum_type(b.in(0).dtype, [&]<class T>() -> Bound {
    std::vector<Matrix<const T>> layers;
    for (std::size_t i = 0; i < b.op.inputs.size(); ++i) layers.push_back(in_matrix<T>(b, i));
    return {[&exec = b.exec, layers, counts = out_matrix<double>(b, program::ExpertCounts::counts)] {
      for (std::size_t i = 0; i < layers.size(); ++i)
        kernels::count_experts<T>(exec, layers[i],
                                  {counts.data + static_cast<std::int64_t>(i) * counts.cols, counts.cols});
    }};
  });
}

/// Losses of micro-batches, [M, 2], as the terms of two sums.
struct Terms {
  std::vector<const double*> balance, z;
};

Bound bind_experts_partials(const Binding& b) {
  using Op = program::ExpertsPartials;
  const Op record = b.record<Op>();
  Terms terms;
  for (std::size_t i = 0; record.counts_loss && i < static_cast<std::size_t>(record.losses); ++i)
    for (std::int64_t at = 0; at < elements(b.in(i).shape); at += 2) {
      terms.balance.push_back(b.input<double>(i) + at);
      terms.z.push_back(b.input<double>(i) + at + 1);
    }
  const bool has_counts = b.op.inputs.size() > static_cast<std::size_t>(record.losses);
  const auto counts = has_counts ? in_matrix<double>(b, b.op.inputs.size() - 1) : Matrix<const double>{};
  double* const workspace = has_counts ? b.output<double>(Op::workspace) : nullptr;
  return {[&exec = b.exec, out = b.output<ExpertsPartial>(Op::partials), terms, counts, workspace,
           idle = record.counts_load] {
    kernels::sum_terms(exec, terms.balance, &out->balance_sum);
    kernels::sum_terms(exec, terms.z, &out->z_sum);
    kernels::largest_load(exec, counts, idle, workspace, out);
  }};
}

Bound bind_move_biases(const Binding& b) {
  using Op = program::MoveBiases;
  const Op record = b.record<Op>();
  return with_sum_type(b.out(0).dtype, [&]<class T>() {
    return launch(b, kernels::move_biases<T>, in_matrix<double>(b, Op::counts),
                  b.input<StepScalars>(Op::scalars), record.speed,
                  kernels::ChoiceBiases<T>{b.output<T>(Op::moved), record.stride});
  });
}

}  // namespace

std::span<const KernelRow> load_kernels() {
  static constexpr KernelRow rows[] = {
      {program::ExpertCounts::op, bind_expert_counts},
      {program::ExpertsPartials::op, bind_experts_partials},
      {program::MoveBiases::op, bind_move_biases},
  };
  return rows;
}

}  // namespace ztrain::engine
