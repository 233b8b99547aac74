// Conversions between placements of a value on the ranks of an axis (program/passes/place.cpp inserts them).
// Each is the adjoint of another: Megatron's f and g and their likes for sequences (Shoeybi et al., 2019;
// Korthikanti et al., 2022).
//
//   copy_to_axis      invariant -> replicated    nothing           backward all-reduce
//   reduce_from_axis  partial   -> invariant     all-reduce        nothing
//   gather_from_axis  split(0)  -> replicated    all-gather        reduce-scatter
//   scatter_to_axis   partial   -> split(0)      reduce-scatter    all-gather
//   tokens_to_columns split(0)  -> split(1)      all-to-all        all-to-all
//   columns_to_tokens split(1)  -> split(0)      all-to-all        all-to-all
//
// The last two are those of DeepSpeed-Ulysses (Jacobs et al., 2023): attention by heads of tokens that are
// split.

#include <fmt/format.h>

#include "kernels/communication/record.hpp"
#include "program/ops/emit.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

AxisSet axes_of(const model::Node& node) {
  return AxisSet::from_bits(static_cast<std::uint32_t>(record_of<OverAxes>(node.attributes).axes));
}

/// What one member sends to another lies together: blocks of columns outside of tokens.
TensorId add_blocks(Program& p, const std::string& name, TensorId like, const Action& action) {
  Tensor t = p.tensor(like);
  t.name = fmt::format("{}.blocks.{}", name, action.micro);
  t.base = no_tensor;
  t.offset = 0;
  return p.add(std::move(t));
}

/// What a conversion does to a value of its node, or, on the way back, to its gradient.
using ChangePlacement = void(Program&, const model::Node&, TensorId x, TensorId y, const Action&);

void reduce_over_axes(Program& p, const model::Node& n, TensorId x, TensorId y, const Action& action) {
  emit_all_reduce(p, n.name, x, y, axes_of(n), action);
  move_to_exchange(p);
}

void gather_over_axes(Program& p, const model::Node& n, TensorId x, TensorId y, const Action& action) {
  emit_all_gather(p, n.name, x, y, axes_of(n), action);
  move_to_exchange(p);
}

void scatter_over_axes(Program& p, const model::Node& n, TensorId x, TensorId y, const Action& action) {
  emit_reduce_scatter(p, n.name, {x, 0}, y, axes_of(n), false, action);
  move_to_exchange(p);
}

/// x: all columns of this rank's tokens; y: this rank's columns of all tokens.
void exchange_for_columns(Program& p, const model::Node& n, TensorId x, TensorId y, const Action& action) {
  const AxisSet axes = axes_of(n);
  const TensorId blocks = add_blocks(p, n.name, x, action);
  add_op(p, SwapBlocks{p.tensor(x).shape[0], p.mesh.size(axes)}, n.name, action, {x}, {blocks});
  emit_all_to_all(p, n.name, blocks, y, axes, action);
  move_to_exchange(p);
}

/// The way back.
void exchange_for_tokens(Program& p, const model::Node& n, TensorId x, TensorId y, const Action& action) {
  const AxisSet axes = axes_of(n);
  const TensorId blocks = add_blocks(p, n.name, x, action);
  emit_all_to_all(p, n.name, x, blocks, axes, action);
  move_to_exchange(p);
  add_op(p, SwapBlocks{p.mesh.size(axes), p.tensor(y).shape[0]}, n.name, action, {blocks}, {y});
}

template <ChangePlacement convert>
void forward_by(Program& p, const Operands& o, const model::Node& n) {
  convert(p, n, o.inputs[OverAxes::x], o.outputs[OverAxes::y], o.action);
}

template <ChangePlacement convert>
void adjoint_by(Tape& t, const model::Node& n) {
  t.contribute(n.inputs[OverAxes::x], [&](TensorId dx) {
    convert(t.program(), n, t.gradient(n.outputs[OverAxes::y]), dx, t.action());
  });
}

constexpr Way same_or_rows[] = {
    {{by_rows}, {by_rows}},
};

/// A sum over other axes may be formed before or after.
constexpr Way same_or_sum[] = {
    {{by_rows}, {by_rows}},
    {{partial}, {partial}},
};

constexpr Way same_or_cut[] = {
    {{by_rows}, {by_rows}},
    {{by_columns}, {by_columns}},
};

constexpr Way same_or_columns[] = {
    {{by_columns}, {by_columns}},
};

}  // namespace

std::span<const OpType> communication_ops() {
  static constexpr OpType rows[] = {
      {.record = record<CopyToAxis>(),
       .adjoint = adjoint_by<reduce_over_axes>,
       .ways = same_or_rows,
       .replicated_only = true,
       .alias = true},
      {.record = record<ReduceFromAxis>(),
       .adjoint = pass_gradient,
       .ways = same_or_sum,
       .forward = forward_by<reduce_over_axes>},
      {.record = record<GatherFromAxis>(),
       .adjoint = adjoint_by<scatter_over_axes>,
       .ways = same_or_cut,
       .replicated_only = true,
       .forward = forward_by<gather_over_axes>},
      {.record = record<ScatterToAxis>(),
       .adjoint = adjoint_by<gather_over_axes>,
       .ways = same_or_rows,
       .replicated_only = true,
       .forward = forward_by<scatter_over_axes>},
      {.record = record<TokensToColumns>(),
       .adjoint = adjoint_by<exchange_for_tokens>,
       .ways = same_or_columns,
       .replicated_only = true,
       .forward = forward_by<exchange_for_columns>},
      {.record = record<ColumnsToTokens>(),
       .adjoint = adjoint_by<exchange_for_columns>,
       .ways = same_or_columns,
       .replicated_only = true,
       .forward = forward_by<exchange_for_tokens>},
      {.record = record<SwapBlocks>(), .ways = same_or_cut},
      {.record = record<SumOfRanks>()},
      {.record = record<AllGather>()},
      {.record = record<ReduceScatter>()},
      {.record = record<AllReduce>()},
      {.record = record<AllToAll>()},
      {.record = record<AllToAllRows>()},
      {.record = record<Shift>()},
      {.record = record<Broadcast>()},
      {.record = record<Send>()},
      {.record = record<Recv>()},
  };
  return rows;
}

}  // namespace ztrain::program
