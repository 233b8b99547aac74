#include <algorithm>
#include <bit>

#include "engine/dispatch.hpp"
#include "engine/queues.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "kernels/optimizer/optimizer_host.hpp"
#include "kernels/optimizer/optimizer_step.hpp"
#include "kernels/optimizer/record.hpp"
#include "kernels/optimizer/step_ahead.hpp"
#include "layout/layout.hpp"

namespace ztrain::engine {
namespace {

static_assert(optim::block == quantum, "blocks of states may not straddle shards");

using program::OptimizerStep;

std::vector<kernels::OptimizerPiece> pieces_of(const OptimizerStep& step) {
  std::vector<kernels::OptimizerPiece> pieces;
  for (const program::SteppedPiece& p : step.pieces) {
    const auto group = static_cast<std::size_t>(p.group);
    ASSERT(group < step.lr_scales.size() && group < step.weight_decays.size(),
           "optimizer_step: group {}, but {} lr_scales and {} weight_decays", p.group, step.lr_scales.size(),
           step.weight_decays.size());
    pieces.push_back({p.begin, p.count, step.lr_scales[group], step.weight_decays[group],
                      std::bit_cast<std::uint64_t>(p.stream), p.slice_begin, p.run, p.stride, p.offset});
  }
  return pieces;
}

/// The dtype of the first state whose type the rule leaves open.
DType moments_type(const Binding& b, const std::vector<optim::StateInfo>& states, std::size_t first) {
  for (std::size_t s = 0; s < states.size(); ++s)
    if (!states[s].dtype) return b.out(first + s).dtype;
  return DType::f32;
}

void check_state(const program::Tensor& tensor, const optim::StateInfo& info, DType moments,
                 std::int64_t parameters) {
  const DType dtype = info.dtype.value_or(moments);
  ASSERT(tensor.dtype == dtype, "optimizer_step: {} is {}, but {} is kept in {}", tensor.name,
         name_of(tensor.dtype), info.name, name_of(dtype));
  const std::int64_t items = ceil_div(parameters, info.granule);
  ASSERT(elements(tensor.shape) >= items, "optimizer_step: {} has {} items, but {} elements need {}",
         tensor.name, elements(tensor.shape), parameters, items);
}

/// Takes blocks [begin, end) of a step of the host.
using StepBlocks = std::function<void(std::int64_t begin, std::int64_t end, const StepScalars& scalars)>;

/// The threads of the host share its blocks, some at a time: enough that a share costs nothing. A step
/// without blocks has one share, of the padding.
Bound on_host(const Binding& b, std::int64_t blocks, StepBlocks step) {
  constexpr std::int64_t each = 256;
  const auto* const scalars = b.input<StepScalars>(OptimizerStep::scalars);
  std::function<void(std::int64_t)> share = [step = std::move(step), scalars, blocks](std::int64_t i) {
    step(i * each, std::min(blocks, (i + 1) * each), *scalars);
  };
  HostThreads* const threads = b.queues != nullptr ? &b.queues->host_threads() : nullptr;
  const std::int64_t shares = std::max(std::int64_t{1}, ceil_div(blocks, each));
  Bound bound{[share = std::move(share), threads, shares] {
    if (threads != nullptr) return threads->share(shares, share);
    for (std::int64_t i = 0; i < shares; ++i) share(i);
  }};
  bound.on_host = true;
  return bound;
}

/// The copies are the last outputs of the op that takes the step, and the last inputs of the one that
/// settles.
std::vector<kernels::KeptArray> kept_arrays(const Binding& b, const OptimizerStep& record,
                                            const std::vector<optim::StateInfo>& states) {
  const bool takes = record.ahead == OptimizerStep::takes;
  const std::size_t stepped = record.master ? 1 : 0, count = states.size() + 1,
                    first = (takes ? b.op.outputs.size() : b.op.inputs.size()) - count;
  std::vector<kernels::KeptArray> kept;
  for (std::size_t i = 0; i < count; ++i)
    kept.push_back(
        {b.output<std::byte>(stepped + i),
         takes ? b.output<std::byte>(first + i) : const_cast<std::byte*>(b.input<std::byte>(first + i)),
         size_of(b.out(stepped + i).dtype), i == 0 ? 1 : states[i - 1].granule});
  return kept;
}

Bound ahead_on_host(const Binding& b, const OptimizerStep& record,
                    const std::vector<optim::StateInfo>& states,
                    std::shared_ptr<kernels::HostOptimizerStep> step) {
  auto ahead = std::make_shared<kernels::StepAhead>(std::move(step), kept_arrays(b, record, states),
                                                    pieces_of(record), elements(b.out(0).shape));
  const std::int64_t blocks = ahead->blocks();
  if (record.ahead == OptimizerStep::takes)
    return on_host(b, blocks, [ahead = std::move(ahead)](auto begin, auto end, const StepScalars& scalars) {
      ahead->take(begin, end, scalars);
    });
  return on_host(b, blocks, [ahead = std::move(ahead)](auto begin, auto end, const StepScalars& scalars) {
    ahead->settle(begin, end, scalars);
  });
}

Bound bind_optimizer_step(const Binding& b) {
  const auto record = b.record<OptimizerStep>();
  const optim::Settings settings{
      record.beta1, record.beta2, record.eps, record.momentum, record.nesterov, 0, record.freeze_step};
  const auto states = optim::find(record.rule).states(settings);
  const std::size_t first = record.master ? 2 : 1;
  const std::size_t outputs =
      first + states.size() + (record.ahead == OptimizerStep::takes ? states.size() + 1 : 0);
  ASSERT(b.op.outputs.size() == outputs, "optimizer_step: {} has {} outputs, not {}", record.rule,
         b.op.outputs.size(), outputs);
  ASSERT(record.ahead.empty() || b.op.tier == program::Tier::host,
         "optimizer_step: {} is stepped ahead of the norm, and not on the host", b.op.name);
  const DType moments = moments_type(b, states, first);
  kernels::OptimizerArrays arrays{b.output<std::byte>(OptimizerStep::parameter),
                                  record.master ? b.output<std::byte>(1) : nullptr,
                                  b.input<std::byte>(OptimizerStep::gradient),
                                  {},
                                  record.whole};
  for (std::size_t s = 0; s < states.size(); ++s) {
    check_state(b.out(first + s), states[s], moments, elements(b.out(0).shape));
    arrays.states.push_back(b.output<std::byte>(first + s));
  }
  const kernels::OptimizerTypes types{b.out(0).dtype, b.out(first - 1).dtype, b.in(0).dtype, moments};
  const kernels::Rounding rounding{record.stochastic, static_cast<std::uint64_t>(record.seed)};
  if (b.op.tier == program::Tier::host) {
    std::shared_ptr step =
        kernels::make_host_optimizer_step(record.rule, settings, types, arrays, pieces_of(record), rounding);
    if (!record.ahead.empty()) return ahead_on_host(b, record, states, std::move(step));
    const std::int64_t blocks = step->blocks();
    return on_host(b, blocks,
                   [step](auto begin, auto end, const StepScalars& s) { step->run(begin, end, s); });
  }
  return launch(b,
                std::shared_ptr(kernels::make_optimizer_step(record.rule, settings, types, arrays,
                                                             pieces_of(record), rounding)),
                b.input<StepScalars>(OptimizerStep::scalars));
}

}  // namespace

std::span<const KernelRow> optimizer_kernels() {
  static constexpr KernelRow rows[] = {
      {OptimizerStep::op, bind_optimizer_step},
  };
  return rows;
}

}  // namespace ztrain::engine
