// The optimizer's op. inputs: gradient, scalars, then the outputs again; outputs: parameter, (master), states
// in the order of the rule's states(). Attributes:
//   rule                        name of a row of the optimizer table
//   master 0|1                  whether there is a separate master
//   beta1, beta2, eps, momentum, nesterov 0|1
//   stochastic 0|1, seed        rounding of parameters that have no master
//   pieces                      eight integers each: begin, count, group, stream, slice_begin, run, stride,
//                               offset (kernels/optimizer/optimizer_step.hpp; stream's bits read as an
//                               unsigned number)
//   lr_scales, weight_decays    one number per group

#include <bit>

#include "engine/binders.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "kernels/optimizer/optimizer_step.hpp"
#include "layout/layout.hpp"

namespace ztrain::engine {
namespace {

static_assert(optim::block == quantum, "blocks of states may not straddle shards");

constexpr std::size_t piece_fields = 8;

std::vector<kernels::OptimizerPiece> pieces_of(const Attributes& a) {
  const std::vector<std::int64_t>& fields = a.integers("pieces");
  const std::vector<double>&scales = a.numbers("lr_scales"), &decays = a.numbers("weight_decays");
  ASSERT(fields.size() % piece_fields == 0, "optimizer_step: {} integers in pieces, not a multiple of {}",
         fields.size(), piece_fields);
  std::vector<kernels::OptimizerPiece> pieces;
  for (std::size_t i = 0; i < fields.size(); i += piece_fields) {
    const std::int64_t* f = &fields[i];
    const auto group = static_cast<std::size_t>(f[2]);
    ASSERT(group < scales.size() && group < decays.size(),
           "optimizer_step: group {}, but {} lr_scales and {} weight_decays", f[2], scales.size(),
           decays.size());
    pieces.push_back({f[0], f[1], scales[group], decays[group], std::bit_cast<std::uint64_t>(f[3]), f[4],
                      f[5], f[6], f[7]});
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

}  // namespace

Bound bind_optimizer_step(const Binding& b) {
  const Attributes& a = b.op.attributes;
  const optim::Settings settings{a.number("beta1"), a.number("beta2"), a.number("eps"), a.number("momentum"),
                                 a.integer("nesterov") != 0};
  const auto states = optim::find(a.text("rule")).states(settings);
  const bool master = a.integer("master") != 0;
  const std::size_t first = master ? 2 : 1;
  ASSERT(b.op.outputs.size() == first + states.size(), "optimizer_step: {} has {} outputs, not {}",
         a.text("rule"), b.op.outputs.size(), first + states.size());
  const DType moments = moments_type(b, states, first);
  kernels::OptimizerArrays arrays{
      b.output<std::byte>(0), master ? b.output<std::byte>(1) : nullptr, b.input<std::byte>(0), {}};
  for (std::size_t s = 0; s < states.size(); ++s) {
    check_state(b.out(first + s), states[s], moments, elements(b.out(0).shape));
    arrays.states.push_back(b.output<std::byte>(first + s));
  }
  const kernels::OptimizerTypes types{b.out(0).dtype, b.out(first - 1).dtype, b.in(0).dtype, moments};
  const kernels::Rounding rounding{a.integer("stochastic") != 0,
                                   static_cast<std::uint64_t>(a.integer("seed"))};
  std::shared_ptr<kernels::OptimizerStep> step =
      kernels::make_optimizer_step(a.text("rule"), settings, types, arrays, pieces_of(a), rounding);
  return {[&exec = b.exec, step, scalars = b.input<StepScalars>(1)] { step->run(exec, scalars); }, nullptr};
}

}  // namespace ztrain::engine
