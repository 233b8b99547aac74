#include "engine/dispatch.hpp"
#include "kernels/preference/preference.hpp"
#include "kernels/preference/record.hpp"

namespace ztrain::engine {
namespace {

Bound bind_sequence_sums(const Binding& b) {
  using Op = SequenceSums;
  const kernels::PreferenceTokens tokens{
      in_vector<double>(b, Op::nll), in_vector<float>(b, Op::token_weights),
      in_vector<std::int32_t>(b, Op::sequences), in_vector<double>(b, Op::reference)};
  return launch(b, kernels::sequence_sums, tokens, out_matrix<double>(b, Op::sums));
}

Bound bind_sequence_sums_grad(const Binding& b) {
  using Op = SequenceSumsGrad;
  return launch(b, kernels::sequence_sums_backward, in_matrix<double>(b, Op::dsums),
                in_vector<std::int32_t>(b, Op::sequences), out_vector<double>(b, Op::dnll));
}

template <class Op>
Bound launch_loss(const Binding& b, double* dsums) {
  const PreferenceConstants c = b.record<Op>();
  const kernels::PairSettings settings{find_pair_loss(c.loss_type).loss,
                                       c.beta,
                                       c.label_smoothing,
                                       c.simpo_gamma,
                                       c.desirable_weight,
                                       c.undesirable_weight,
                                       c.center_rewards_coefficient};
  const double* const kl = b.op.inputs.size() > Op::kl ? b.input<double>(Op::kl) : nullptr;
  const kernels::PairResults results{out_vector<double>(b, Op::losses), out_vector<double>(b, Op::report),
                                     b.output<double>(Op::logps), dsums,
                                     reinterpret_cast<double*>(b.output<std::byte>(Op::workspace))};
  return launch(b, kernels::preference_loss, settings, in_matrix<double>(b, Op::sums), kl, results);
}

Bound bind_preference_loss(const Binding& b) {
  return launch_loss<PreferenceLoss>(b, nullptr);
}
Bound bind_preference_loss_grad(const Binding& b) {
  return launch_loss<PreferenceLossGrad>(b, b.output<double>(PreferenceLossGrad::dsums));
}

Bound bind_kl_sums(const Binding& b) {
  return launch(b, kernels::kl_sums, in_matrix<double>(b, KlSums::sums), out_vector<double>(b, KlSums::kl));
}

Bound bind_preference_report(const Binding& b) {
  using Op = program::PreferenceReport;
  const bool counts = b.record<Op>().counts && !b.op.inputs.empty();
  // A step has a report for each of its micro-batches, an evaluation one of its own.
  const auto reports = [&] {
    const std::int64_t width = elements(b.out(Op::report).shape);
    return Matrix<const double>{b.input<double>(0), elements(b.in(0).shape) / width, width};
  };
  return launch(b, kernels::preference_report, counts ? reports() : Matrix<const double>{},
                out_vector<double>(b, Op::report));
}

}  // namespace

std::span<const KernelRow> preference_kernels() {
  static constexpr KernelRow rows[] = {
      {SequenceSums::op, bind_sequence_sums},
      {SequenceSumsGrad::op, bind_sequence_sums_grad},
      {KlSums::op, bind_kl_sums},
      {PreferenceLoss::op, bind_preference_loss},
      {PreferenceLossGrad::op, bind_preference_loss_grad},
      {program::PreferenceReport::op, bind_preference_report},
  };
  return rows;
}

}  // namespace ztrain::engine
