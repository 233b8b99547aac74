// Norms of rows.

#include <algorithm>

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/linear/record.hpp"
#include "kernels/norm/record.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

void rmsnorm_adjoint(Tape& t, const model::Node& n) {
  const GradientTarget dw = t.target(n.inputs[RmsNorm::weight]);
  const auto [dx, addend] = t.target_with_addend(n.inputs[RmsNorm::x]);
  std::vector<TensorId> inputs{t.tensor(n.inputs[RmsNorm::x]), t.tensor(n.inputs[RmsNorm::weight]),
                               t.tensor(n.outputs[RmsNorm::rstd]), t.gradient(n.outputs[RmsNorm::y])};
  if (addend != no_tensor) inputs.push_back(addend);
  const Tensor& x = t.info(inputs[RmsNormGrad::x]);
  const std::int64_t width = t.info(inputs[RmsNormGrad::weight]).shape[0], rows = elements(x.shape) / width;
  const TensorId ws =
      t.workspace(n.name, rmsnorm_backward_workspace_bytes(rows, width, x.dtype, t.kernels()));
  const auto norm = record_of<RmsNorm>(n.attributes);
  const RmsNormGrad record{dw.accumulate, norm.of_heads, addend != no_tensor, norm.one_plus};
  t.emit(record, n.name, std::move(inputs), {dx, dw.tensor, ws});
  t.reads(dw);
}

void layer_norm_adjoint(Tape& t, const model::Node& n) {
  const TensorId dy = t.gradient(n.outputs[LayerNorm::y]);
  const GradientTarget dw = t.target(n.inputs[LayerNorm::weight]);
  const auto [dx, addend] = t.target_with_addend(n.inputs[LayerNorm::x]);
  std::vector<TensorId> inputs{t.tensor(n.inputs[LayerNorm::x]), t.tensor(n.inputs[LayerNorm::weight]),
                               t.tensor(n.outputs[LayerNorm::mean]), t.tensor(n.outputs[LayerNorm::rstd]),
                               dy};
  if (addend != no_tensor) inputs.push_back(addend);
  const Tensor& x = t.info(inputs[LayerNormGrad::x]);
  const TensorId ws =
      t.workspace(n.name, rmsnorm_backward_workspace_bytes(x.shape[0], x.shape[1], x.dtype, t.kernels()));
  t.emit(LayerNormGrad{dw.accumulate, addend != no_tensor}, n.name, std::move(inputs), {dx, dw.tensor, ws});
  t.reads(dw);
  if (!t.wants(n.inputs[LayerNorm::bias])) return;
  const GradientTarget db = t.target(n.inputs[LayerNorm::bias]);
  t.emit(LinearGradBias{{db.accumulate}}, n.name, {dy}, {db.tensor});
  t.reads(db);
}

void row_squares_adjoint(Tape& t, const model::Node& n) {
  t.contribute(n.inputs[RowSquares::x], [&](TensorId dx) {
    t.emit(RowSquaresGrad{record_of<RowSquares>(n.attributes).first}, n.name,
           {t.tensor(n.inputs[RowSquares::x]), t.gradient(n.outputs[RowSquares::y])}, {dx});
  });
}

void rms_scale_adjoint(Tape& t, const model::Node& n) {
  const auto norm = record_of<RmsScale>(n.attributes);
  std::vector<TensorId> inputs = t.tensors(n.inputs);
  inputs.push_back(t.gradient(n.outputs[RmsScale::y]));
  const Tensor& x = t.info(inputs[RmsScaleGrad::x]);
  const TensorId ws =
      t.workspace(n.name, rmsnorm_backward_workspace_bytes(x.shape[0], x.shape[1], x.dtype, t.kernels()));
  const std::vector<model::ValueId> of{n.inputs[RmsScale::x], n.inputs[RmsScale::squares]};
  t.contribute(of, [&](const std::vector<TensorId>& d) {
    const GradientTarget dw = t.target(n.inputs[RmsScale::weight]);
    t.emit(RmsScaleGrad{norm.eps, norm.width, dw.accumulate}, n.name, std::move(inputs),
           {d[0], d[1], dw.tensor, ws});
    t.reads(dw);
  });
}

/// Ranks that share heads of keys have the same columns, of which the first rank sums the squares.
void fit_row_squares(model::Node& node, const PartOfNode& part) {
  if (!part.is_split(RowSquares::x, 1)) return;
  const auto& parts = part.inputs[RowSquares::x].parts;
  std::int64_t summed = 0;
  for (int rank = 0; rank < part.index; ++rank) summed = std::max(summed, parts[at(rank)].end);
  const model::Rows own = parts[at(part.index)];
  edit<RowSquares>(node.attributes, [&](RowSquares& r) {
    r.first = std::clamp<std::int64_t>(summed - own.begin, 0, own.end - own.begin);
  });
}

/// A norm of whole rows needs them whole; one of heads does not.
template <class Record>
bool of_heads(const Attributes& a, AxisSet) {
  return record_of<Record>(a).of_heads;
}
OperandGroups rmsnorm_grad_groups(const Op& op) {
  if (record_of<RmsNormGrad>(op.attributes).has_addend) return groups_that_end(op, {1, 2, 3, 4, 5});
  return groups_that_end(op, {1, 2, 3, 4});
}

OperandGroups layer_norm_grad_groups(const Op& op) {
  if (record_of<LayerNormGrad>(op.attributes).has_addend) return groups_that_end(op, {1, 2, 3, 4, 5, 6});
  return groups_that_end(op, {1, 2, 3, 4, 5});
}
OperandGroups rms_scale_grad_groups(const Op& op) {
  return groups_that_end(op, {1, 2, 3, 4});
}

constexpr Way layer_norm_ways[] = {
    {{by_rows, replicated, replicated}, {by_rows, by_rows, by_rows}},
};

constexpr Way layer_norm_grad_ways[] = {
    {{by_rows, replicated, by_rows, by_rows, by_rows, by_rows}, {by_rows, partial}},
    {{replicated, replicated, replicated, replicated, partial, partial}, {partial, partial}},
};

constexpr Way row_squares_ways[] = {
    {{by_rows}, {by_rows}},
    {{by_columns}, {partial}},
};

constexpr Way row_squares_grad_ways[] = {
    {{by_rows, by_rows}, {by_rows}},
    {{by_columns, replicated}, {by_columns}},
    {{replicated, partial}, {partial}},
};

constexpr Way rms_scale_ways[] = {
    {{by_rows, replicated, by_rows}, {by_rows}},
    {{by_columns, by_rows, replicated}, {by_columns}},
};

constexpr Way rms_scale_grad_ways[] = {
    {{by_rows, replicated, by_rows, by_rows}, {by_rows, by_rows, partial}},
    {{by_columns, by_rows, replicated, by_columns}, {by_columns, partial, by_rows}},
    {{replicated, replicated, replicated, partial}, {partial, partial, partial}},
};

constexpr Way rmsnorm_ways[] = {
    {{by_rows, replicated}, {by_rows, by_rows}},
    {{by_columns, replicated}, {by_columns, by_rows}, {.of = of_heads<RmsNorm>}},
};

constexpr Way add_rmsnorm_ways[] = {
    {{by_rows, by_rows, replicated}, {by_rows}},
};

constexpr Way rmsnorm_grad_ways[] = {
    {{by_rows, replicated, by_rows, by_rows, by_rows}, {by_rows, partial}},
    {{replicated, replicated, replicated, partial, partial}, {partial, partial}},
    {{by_columns, replicated, by_rows, by_columns, by_columns},
     {by_columns, partial},
     {.of = of_heads<RmsNormGrad>}},
};

}  // namespace

std::span<const OpType> norm_ops() {
  static constexpr OpType rows[] = {
      {.record = record<RmsNorm>(), .adjoint = rmsnorm_adjoint, .ways = rmsnorm_ways},
      {.record = record<AddRmsNorm>(),
       .overlay = 2,
       .ways = add_rmsnorm_ways},  // made after expansion, by passes/fusion.cpp
      {.record = record<RmsNormGrad>(), .ways = rmsnorm_grad_ways, .groups = rmsnorm_grad_groups},
      {.record = record<LayerNorm>(), .adjoint = layer_norm_adjoint, .ways = layer_norm_ways},
      {.record = record<LayerNormGrad>(), .ways = layer_norm_grad_ways, .groups = layer_norm_grad_groups},
      {.record = record<RowSquares>(),
       .adjoint = row_squares_adjoint,
       .ways = row_squares_ways,
       .fit = fit_row_squares},
      {.record = record<RowSquaresGrad>(), .ways = row_squares_grad_ways},
      {.record = record<RmsScale>(), .adjoint = rms_scale_adjoint, .ways = rms_scale_ways},
      {.record = record<RmsScaleGrad>(), .ways = rms_scale_grad_ways, .groups = rms_scale_grad_groups},
  };
  return rows;
}

}  // namespace ztrain::program
