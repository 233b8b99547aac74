#include "kernels/preference/record.hpp"

#include "base/preference_loss.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

void sequence_sums_adjoint(Tape& t, const model::Node& n) {
  const model::ValueId nll = n.inputs[SequenceSums::nll];
  t.contribute(nll, [&](TensorId dnll) {
    t.emit(SequenceSumsGrad{}, n.name,
           {t.gradient(n.outputs[SequenceSums::sums]), t.tensor(n.inputs[SequenceSums::sequences])}, {dnll});
  });
}

void preference_loss_adjoint(Tape& t, const model::Node& n) {
  const model::ValueId sums = n.inputs[PreferenceLoss::sums];
  const auto tensor = [&](std::size_t output) { return t.tensor(n.outputs[output]); };
  t.contribute(sums, [&](TensorId dsums) {
    t.emit(PreferenceLossGrad{record_of<PreferenceLoss>(n.attributes)}, n.name, t.tensors(n.inputs),
           {tensor(PreferenceLoss::losses), tensor(PreferenceLoss::report), tensor(PreferenceLoss::logps),
            dsums});
  });
}

std::int64_t loss_workspace(const Program& p, const Op& op) {
  return preference_workspace_bytes(p.tensor(op.inputs[PreferenceLoss::sums]).shape[0]);
}

// Ranks that have a part of a micro-batch's tokens add up their sums. Ranks with other sequences have pairs
// of their own.
constexpr Way sums_ways[] = {
    {{by_rows, by_rows, by_rows, by_rows}, {partial}, {.over = context_axes}},
    {{by_rows, by_rows, by_rows, by_rows}, {by_rows}, {.over = sequence_axes}},
};
constexpr Way sums_grad_ways[] = {
    {{replicated, by_rows}, {by_rows}, {.over = context_axes}},
    {{by_rows, by_rows}, {by_rows}, {.over = sequence_axes}},
};
constexpr Way loss_ways[] = {
    {{by_rows, replicated}, {partial, partial, by_rows, by_rows}, {.over = sequence_axes}},
};
constexpr Way kl_ways[] = {
    {{by_rows}, {by_rows}, {.over = sequence_axes}},
};

}  // namespace

std::span<const OpType> preference_ops() {
  static constexpr OpType rows[] = {
      {.record = record<SequenceSums>(), .adjoint = sequence_sums_adjoint, .ways = sums_ways, .kept = true},
      {.record = record<SequenceSumsGrad>(), .ways = sums_grad_ways},
      {.record = record<KlSums>(), .ways = kl_ways, .kept = true},
      {.record = record<PreferenceLoss>(),
       .adjoint = preference_loss_adjoint,
       .workspace = loss_workspace,
       .forward_with_gradient = true,
       .ways = loss_ways,
       .invariant_only = true},
      {.record = record<PreferenceLossGrad>(), .workspace = loss_workspace, .ways = loss_ways},
      {.record = record<PreferenceReport>()},
  };
  return rows;
}

}  // namespace ztrain::program
