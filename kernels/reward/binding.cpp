#include "engine/dispatch.hpp"
#include "kernels/reward/record.hpp"
#include "kernels/reward/reward_tokens.hpp"

namespace ztrain::engine {
namespace {

template <class Op, class T>
kernels::RewardInput<T> reward_input(const Binding& b) {
  using In = RewardTokens;  // its gradient begins with the same operands
  return {in_matrix<T>(b, In::h), in_vector<T>(b, In::weight), in_vector<float>(b, In::token_weights),
          b.record<Op>().first_token};
}

Bound bind_reward_tokens(const Binding& b) {
  using Op = RewardTokens;
  return with_type(b.in(Op::h).dtype, [&]<class T>() {
    return launch(b, kernels::reward_tokens<T>, reward_input<Op, T>(b), out_vector<double>(b, Op::nll));
  });
}

Bound bind_reward_tokens_grad(const Binding& b) {
  using Op = program::RewardTokensGrad;
  const DType type = b.in(Op::h).dtype;
  const bool frozen = b.op.outputs.size() <= Op::dweight;
  return with_gradient_types(type, frozen ? type : b.out(Op::dweight).dtype, [&]<class T, class G>() {
    return launch(b, kernels::reward_tokens_backward<T, G>, reward_input<Op, T>(b),
                  in_vector<double>(b, Op::dnll), b.input<StepScalars>(Op::scalars), out_matrix<T>(b, Op::dh),
                  frozen ? Vector<G>{} : out_vector<G>(b, Op::dweight), accumulates(b));
  });
}

}  // namespace

std::span<const KernelRow> reward_kernels() {
  static constexpr KernelRow rows[] = {
      {RewardTokens::op, bind_reward_tokens},
      {program::RewardTokensGrad::op, bind_reward_tokens_grad},
  };
  return rows;
}

}  // namespace ztrain::engine
