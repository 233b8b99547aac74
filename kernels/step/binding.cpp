#include "engine/dispatch.hpp"
#include "kernel_interface/exact_sum.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "kernels/elementwise/copies.hpp"
#include "kernels/elementwise/record.hpp"
#include "kernels/step/record.hpp"
#include "kernels/step/step_metrics.hpp"

namespace ztrain::engine {
namespace {

Bound bind_sum_squares(const Binding& b) {
  using Op = program::SumSquares;
  return with_type(b.in(Op::gradient).dtype, [&]<class G>() -> Bound {
    const G* gradient = b.input<G>(Op::gradient);
    auto* out = b.output<ExactSum>(Op::norm);
    void* workspace = b.output<std::byte>(Op::workspace);
    return {[&exec = b.exec, gradient, out, workspace, pieces = b.record<Op>().pieces] {
      kernels::zero(exec, out, sizeof(ExactSum));
      for (const program::Elements& piece : pieces)
        kernels::sum_squares<G>(exec, {gradient + piece.begin, piece.count}, true, out, workspace);
    }};
  });
}

Bound bind_step_partials(const Binding& b) {
  const auto record = b.record<program::StepPartials>();
  const auto losses = static_cast<std::size_t>(record.losses);
  std::vector<const double*> loss, weight;
  std::vector<const ExactSum*> squares;
  for (std::size_t i = 0; i < b.op.inputs.size(); ++i) {
    if (i >= losses) {
      squares.push_back(b.input<ExactSum>(i));
      continue;
    }
    for (std::int64_t at = 0; record.counts_loss && at < elements(b.in(i).shape); at += 2) {
      loss.push_back(b.input<double>(i) + at);
      weight.push_back(b.input<double>(i) + at + 1);
    }
  }
  return {
      [&exec = b.exec, out = b.output<StepPartial>(program::StepPartials::partials), loss, weight, squares] {
        kernels::sum_terms(exec, loss, &out->loss_sum);
        kernels::sum_terms(exec, weight, &out->weight_sum);
        kernels::sum_exact(exec, squares, &out->squares);
      }};
}

Bound bind_finish_step(const Binding& b) {
  using Op = program::FinishStep;
  const Vector<const StepPartial> partials{b.input<StepPartial>(Op::partials), b.in(Op::partials).shape[0]};
  const double* const overflows =
      b.op.inputs.size() > Op::overflows ? b.input<double>(Op::overflows) : nullptr;
  return launch(b, kernels::finish_step, partials, overflows, b.output<StepScalars>(Op::finished));
}

}  // namespace

std::span<const KernelRow> step_kernels() {
  static constexpr KernelRow rows[] = {
      {program::SumSquares::op, bind_sum_squares},
      {program::StepPartials::op, bind_step_partials},
      {program::FinishStep::op, bind_finish_step},
  };
  return rows;
}

}  // namespace ztrain::engine
