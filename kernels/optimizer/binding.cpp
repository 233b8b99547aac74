#include <algorithm>
#include <bit>

#include "engine/dispatch.hpp"
#include "engine/queues.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "kernels/optimizer/optimizer_host.hpp"
#include "kernels/optimizer/optimizer_step.hpp"
#include "kernels/optimizer/record.hpp"
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

/// The threads of the host share its blocks, some at a time: enough that a share costs nothing.
Bound on_host(const Binding& b, std::shared_ptr<kernels::HostOptimizerStep> step) {
  constexpr std::int64_t each = 256;
  const auto* const scalars = b.input<StepScalars>(OptimizerStep::scalars);
  const std::int64_t blocks = step->blocks();
  std::function<void(std::int64_t)> share = [step = std::move(step), scalars, blocks](std::int64_t i) {
    step->run(i * each, std::min(blocks, (i + 1) * each), *scalars);
  };
  HostThreads* const threads = b.queues != nullptr ? &b.queues->host_threads() : nullptr;
  Bound bound{[share = std::move(share), threads, shares = ceil_div(blocks, each)] {
    if (threads != nullptr) return threads->share(shares, share);
    for (std::int64_t i = 0; i < shares; ++i) share(i);
  }};
  bound.on_host = true;
  return bound;
}

Bound bind_optimizer_step(const Binding& b) {
  const auto record = b.record<OptimizerStep>();
  const optim::Settings settings{record.beta1, record.beta2, record.eps, record.momentum, record.nesterov};
  const auto states = optim::find(record.rule).states(settings);
  const std::size_t first = record.master ? 2 : 1;
  ASSERT(b.op.outputs.size() == first + states.size(), "optimizer_step: {} has {} outputs, not {}",
         record.rule, b.op.outputs.size(), first + states.size());
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
  if (b.op.tier == program::Tier::host)
    return on_host(b, kernels::make_host_optimizer_step(record.rule, settings, types, arrays,
                                                        pieces_of(record), rounding));
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
