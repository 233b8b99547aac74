#include "engine/binders/dispatch.hpp"
#include "engine/tier_copy.hpp"
#include "kernel_interface/step_partial.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "kernels/elementwise/bytes.hpp"
#include "kernels/elementwise/cast.hpp"
#include "kernels/step/step_metrics.hpp"
#include "kernels/step/sum_squares.hpp"
#include "program/ops/conversion_records.hpp"
#include "program/ops/step_records.hpp"

namespace ztrain::engine {
namespace {

Bound bind_copy(const Binding& b) {
  if (auto copy = make_tier_copy(b)) return {nullptr, std::move(copy)};
  return {[&exec = b.exec, from = b.input<std::byte>(Copy::x), to = b.output<std::byte>(Copy::y),
           bytes = b.in(Copy::x).bytes()] { kernels::copy(exec, from, to, bytes); },
          nullptr};
}

Bound bind_cast(const Binding& b) {
  using Op = program::Cast;
  return with_type(b.in(Op::x).dtype, [&]<class A>(Type<A>) {
    return with_type(b.out(Op::y).dtype, [&]<class B>(Type<B>) -> Bound {
      const auto from = in_vector<A>(b, Op::x);
      const auto to = out_vector<B>(b, Op::y);
      return {[&exec = b.exec, from, to] { kernels::cast<A, B>(exec, from, to); }, nullptr};
    });
  });
}

Bound bind_zero_gaps(const Binding& b) {
  using Op = program::ZeroGaps;
  return {[&exec = b.exec, to = b.output<std::byte>(Op::gradient), width = size_of(b.out(Op::gradient).dtype),
           gaps = b.record<Op>().gaps] {
            for (const program::Elements& gap : gaps)
              kernels::zero(exec, to + gap.begin * width, gap.count * width);
          },
          nullptr};
}

Bound bind_release(const Binding&) {
  return {[] {}, nullptr};
}

Bound bind_sum_squares(const Binding& b) {
  using Op = program::SumSquares;
  return with_type(b.in(Op::gradient).dtype, [&]<class G>(Type<G>) -> Bound {
    const G* gradient = b.input<G>(Op::gradient);
    auto* out = b.output<ExactSum>(Op::norm);
    void* workspace = b.output<std::byte>(Op::workspace);
    return {[&exec = b.exec, gradient, out, workspace, pieces = b.record<Op>().pieces] {
              kernels::zero(exec, out, sizeof(ExactSum));
              for (const program::Elements& piece : pieces)
                kernels::sum_squares<G>(exec, {gradient + piece.begin, piece.count}, true, out, workspace);
            },
            nullptr};
  });
}

Bound bind_step_partials(const Binding& b) {
  const auto record = b.record<program::StepPartials>();
  const auto losses = static_cast<std::size_t>(record.losses);
  std::vector<kernels::Term> loss, weight;
  std::vector<const ExactSum*> squares;
  for (std::size_t i = 0; i < b.op.inputs.size(); ++i) {
    if (i >= losses) {
      squares.push_back(b.input<ExactSum>(i));
      continue;
    }
    for (std::int64_t at = 0; at < elements(b.in(i).shape); at += 2) {
      loss.push_back({b.input<double>(i) + at, record.counts_loss});
      weight.push_back({b.input<double>(i) + at + 1, record.counts_loss});
    }
  }
  return {
      [&exec = b.exec, out = b.output<StepPartial>(program::StepPartials::partials), loss, weight, squares] {
        kernels::sum_terms(exec, loss, &out->loss_sum);
        kernels::sum_terms(exec, weight, &out->weight_sum);
        kernels::sum_exact(exec, squares, &out->squares);
      },
      nullptr};
}

Bound bind_finish_step(const Binding& b) {
  using Op = program::FinishStep;
  const Vector<const StepPartial> partials{b.input<StepPartial>(Op::partials), b.in(Op::partials).shape[0]};
  auto* scalars = b.output<StepScalars>(Op::finished);
  return {[&exec = b.exec, partials, scalars] { kernels::finish_step(exec, partials, scalars); }, nullptr};
}

}  // namespace

std::span<const KernelRow> step_kernels() {
  static constexpr KernelRow rows[] = {
      {Copy::op, bind_copy},
      {program::OwnRows::op, bind_copy},
      {program::Cast::op, bind_cast},
      {program::Release::op, bind_release},
      {program::ZeroGaps::op, bind_zero_gaps},
      {program::SumSquares::op, bind_sum_squares},
      {program::StepPartials::op, bind_step_partials},
      {program::FinishStep::op, bind_finish_step},
  };
  return rows;
}

}  // namespace ztrain::engine
