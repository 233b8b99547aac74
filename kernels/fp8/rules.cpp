// The backward of a product of 8-bit codes. Gradients are quantised to e5m2. The library's products take both
// operands with the summed dim last, so the others are transposed as bytes. docs/architecture.md ("Products
// with 8-bit floats") says why it is so:
// tensorwise: dx = dy W and dW = dy^T x are products of codes: one scale serves a matrix and its transpose.
// rowwise: dx = (dy s) C for W = diag(s) C with the forward's codes C; dW stays in bf16, from what was not
// quantised.

#include <fmt/format.h>

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/fp8/record.hpp"
#include "kernels/linear/record.hpp"
#include "program/ops/emit.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {

template <class Record>
void emit_quantize(Program& p, const std::string& name, Record record, Operands operands) {
  const AxisSet axes = AxisSet::from_bits(static_cast<std::uint32_t>(record.axes));
  const std::int64_t ranks = p.mesh.size(axes);
  record.axes = 0;
  if (ranks > 1) {
    const std::int64_t scales = elements(p.tensor(operands.outputs[Record::scales]).shape);
    const std::string largest = fmt::format("largest.{}.{}", name, operands.action.micro);
    const TensorId from = p.add({.name = largest, .shape = {scales}}),
                   to = p.add({.name = largest + ".gathered", .shape = {ranks * scales}});
    add_op(p, Fp8Magnitudes{{.rowwise = record.rowwise}}, name, operands.action, operands.inputs, {from});
    emit_all_gather(p, name, from, to, axes, operands.action);
    move_to_exchange(p);
    operands.inputs.push_back(to);
    record.found = ranks;
  }
  add_op(p, record, name, operands.action, std::move(operands.inputs), std::move(operands.outputs));
}

template void emit_quantize(Program&, const std::string&, Fp8Quantize, Operands);
template void emit_quantize(Program&, const std::string&, Fp8QuantizeBoth, Operands);

namespace {

template <class Record>
void quantize_forward(Program& p, const Operands& operands, const model::Node& n) {
  emit_quantize(p, n.name, record_of<Record>(n.attributes), operands);
}

struct Coded {
  TensorId codes = no_tensor, scales = no_tensor;
  TensorId transposed = no_tensor;  ///< the same codes
};

/// dy, coded by token, of dy times factors of its columns.
Coded quantised_rows(Tape& t, const std::string& name, std::int64_t axes, TensorId dy, TensorId columns) {
  const Shape shape = t.info(dy).shape;
  const Coded coded{t.temporary("grad.codes." + name, DType::f8e5m2, shape),
                    t.temporary("grad.scales." + name, DType::f32, {shape[0]})};
  emit_quantize(t.program(), name, Fp8Quantize{{.rowwise = true, .axes = axes}},
                {{dy, columns}, {coded.codes, coded.scales}, t.action()});
  return coded;
}

/// dy, coded with one scale, both ways round: drop_dead_ops leaves out the transpose where nothing reads it.
Coded quantised_whole(Tape& t, const std::string& name, std::int64_t axes, TensorId dy) {
  const Shape shape = t.info(dy).shape;
  const Coded coded{t.temporary("grad.codes." + name, DType::f8e5m2, shape),
                    t.temporary("grad.scales." + name, DType::f32, {1}),
                    t.temporary("grad.transposed." + name, DType::f8e5m2, {shape[1], shape[0]})};
  emit_quantize(t.program(), name, Fp8QuantizeBoth{{.axes = axes}},
                {{dy}, {coded.codes, coded.scales, coded.transposed}, t.action()});
  return coded;
}

/// The weight's codes with the summed dim last, and what their rows are to be scaled by.
Coded transposed_weight(Tape& t, const model::Node& n, bool rowwise) {
  const TensorId codes = t.tensor(n.inputs[LinearFp8::weight]);
  const std::int64_t out = t.info(codes).shape[0], in = t.info(codes).shape[1];
  Coded coded{t.temporary("transposed." + n.name + ".weight", DType::f8e4m3, {in, out}),
              t.tensor(n.inputs[LinearFp8::weight_scales])};
  std::vector<TensorId> outputs{coded.codes};
  if (rowwise) outputs.push_back(coded.scales = t.temporary("ones." + n.name, DType::f32, {in}));
  t.emit(Fp8Transpose{}, n.name, {codes}, std::move(outputs));
  return coded;
}

/// An op into a gradient.
template <class Record>
void into(Tape& t, const GradientTarget& to, const Record& record, const model::Node& n,
          std::vector<TensorId> inputs) {
  t.emit(record, n.name, std::move(inputs), {to.tensor});
  t.reads(to);
}

void input_gradient(Tape& t, const model::Node& n, const Coded& gradient, bool rowwise) {
  const Coded weight = transposed_weight(t, n, rowwise);
  const GradientTarget dx = t.target(t.source(n.inputs[LinearFp8::x]));
  into(t, dx, LinearFp8GradInput{dx.accumulate, rowwise}, n,
       {gradient.codes, gradient.scales, weight.codes, weight.scales});
}

void weight_gradient(Tape& t, const model::Node& n, const Coded& gradient, bool rowwise) {
  const model::ValueId x = n.inputs[LinearFp8::x];
  const GradientTarget dw = t.target(n.inputs[LinearFp8::weight]);
  if (rowwise)
    return into(t, dw, LinearGradWeight{{dw.accumulate}}, n,
                {t.gradient(n.outputs[LinearFp8::y]), t.tensor(t.source(x))});
  const model::Node& maker = t.maker(x);
  ASSERT(maker.op == Fp8QuantizeBoth::op, "{}: its input's codes come from {}, which gives no transpose",
         n.name, maker.name);
  const TensorId input = t.tensor(maker.outputs[Fp8QuantizeBoth::transposed]);
  into(t, dw, LinearFp8GradWeight{{dw.accumulate, rowwise}}, n,
       {gradient.transposed, gradient.scales, input, t.tensor(n.inputs[LinearFp8::x_scales])});
}

void linear_fp8_adjoint(Tape& t, const model::Node& n) {
  const auto [rowwise, axes, found] = static_cast<Quantization>(record_of<LinearFp8>(n.attributes));
  const model::ValueId w = n.inputs[LinearFp8::weight];
  const bool to_input = t.wants(t.source(n.inputs[LinearFp8::x]));
  const TensorId dy = t.gradient(n.outputs[LinearFp8::y]);
  Coded gradient;
  if (!rowwise && (to_input || t.wants(w))) gradient = quantised_whole(t, n.name, axes, dy);
  if (rowwise && to_input)
    gradient = quantised_rows(t, n.name, axes, dy, t.tensor(n.inputs[LinearFp8::weight_scales]));
  if (to_input) input_gradient(t, n, gradient, rowwise);
  if (t.wants(w)) weight_gradient(t, n, gradient, rowwise);
  if (n.inputs.size() <= LinearFp8::bias || !t.wants(n.inputs[LinearFp8::bias])) return;
  const GradientTarget db = t.target(n.inputs[LinearFp8::bias]);
  into(t, db, LinearGradBias{{db.accumulate}}, n, {dy});
}

/// 2 m n k of C[m, n]: operand 0 is [m, k].
double fp8_flops(const Program& p, const Op& op) {
  return 2 * dim(p, op.outputs[0], 0) * dim(p, op.outputs[0], 1) * dim(p, op.inputs[0], 1);
}

std::int64_t fp8_workspace(const Program& p, const Op&) {
  return gemm_fp8_workspace_bytes(p.target);
}

std::int64_t quantize_workspace(const Program&, const Op& op) {
  const auto record = record_of<Quantization>(op.attributes);
  return record.rowwise || record.found > 0 ? 0 : fp8_quantize_workspace_bytes;
}

void fit_quantize(model::Node& node, const PartOfNode& part) {
  edit<Quantization>(node.attributes, [&](Quantization& q) {
    const bool columns = part.is_split(Fp8Quantize::x, 1);
    if (columns || (!q.rowwise && part.is_split(Fp8Quantize::x, 0))) q.axes |= part.axes.bits();
  });
}

/// Where tokens or columns of the gradient are this rank's. The bias of a sum is added by one rank.
void fit_linear_fp8(model::Node& node, const PartOfNode& part) {
  edit<LinearFp8>(node.attributes, [&](LinearFp8& linear) {
    if (part.output == split(1) || (!linear.rowwise && part.output == split(0)))
      linear.axes |= part.axes.bits();
    if (part.output == partial && node.inputs.size() > LinearFp8::bias)
      linear.adds_bias = part.index == 0 ? 1 : 0;
  });
}

template <class Record>
bool has_one_scale(const Attributes& a, AxisSet) {
  return !record_of<Record>(a).rowwise;
}
template <class Record>
bool has_scales_of_rows(const Attributes& a, AxisSet) {
  return record_of<Record>(a).rowwise;
}
bool magnitudes_are_found(const Attributes& a) {
  return record_of<Quantization>(a).found > 0;
}
OperandGroups quantize_groups(const Op& op) {
  if (!magnitudes_are_found(op.attributes)) return groups_that_end(op, {1});
  return {{op.inputs.front()}, {op.inputs.back()}};
}

// The inputs are x and, if they are found, the largest magnitudes. Ranks with sequences of their own have
// scales of their own, as rows have; else all parts share a scale. Over the tensor axis a node quantises
// whole tokens.
constexpr Way quantize_ways[] = {
    {{by_rows, by_rows},
     {by_rows, by_rows},
     {.of = has_scales_of_rows<Quantization>, .nodes_over = token_axes}},
    {{by_rows, by_rows}, {by_rows, by_rows}, {.of = has_one_scale<Quantization>, .over = sequence_axes}},
    {{by_rows, replicated},
     {by_rows, replicated},
     {.of = has_one_scale<Quantization>, .nodes_over = context_axes, .says = magnitudes_are_found}},
    {{by_columns, replicated}, {by_columns, replicated}, {.says = magnitudes_are_found}},
};

constexpr Way quantize_both_ways[] = {
    {{by_rows, by_rows}, {by_rows, by_rows, by_columns}, {.over = sequence_axes}},
    {{by_rows, replicated},
     {by_rows, replicated, by_columns},
     {.nodes_over = context_axes, .says = magnitudes_are_found}},
    {{by_columns, replicated}, {by_columns, replicated, by_rows}, {.says = magnitudes_are_found}},
};

// The ranks' magnitudes follow one another.
constexpr Way magnitudes_ways[] = {
    {{by_rows}, {by_rows}},
    {{by_columns}, {by_rows}},
};

constexpr Way transpose_ways[] = {
    {{by_rows}, {by_columns, replicated}},
    {{by_columns}, {by_rows, by_rows}},
};

/// Rows have scales of their own, and so have tokens that are dealt.
template <class Record>
bool scales_lie_by_rows(const Attributes& a, AxisSet axes) {
  return record_of<Record>(a).rowwise || (axes.bits() & ~sequence_axes.bits()) == 0;
}
constexpr Way linear_fp8_ways[] = {
    {{by_rows, by_rows, replicated, replicated, replicated},
     {by_rows},
     {.of = scales_lie_by_rows<LinearFp8>}},
    {{by_rows, replicated, replicated, replicated, replicated}, {by_rows}, {.of = has_one_scale<LinearFp8>}},
    {{replicated, replicated, by_rows, replicated, by_rows}, {by_columns}, {.of = has_one_scale<LinearFp8>}},
    {{replicated, replicated, by_rows, by_rows, by_rows},
     {by_columns},
     {.of = has_scales_of_rows<LinearFp8>}},
    {{by_columns, replicated, by_columns, replicated, invariant}, {partial}},
};

using GradInput = LinearFp8GradInput;
constexpr Way linear_fp8_grad_input_ways[] = {
    {{by_rows, by_rows, replicated, replicated}, {by_rows}, {.of = scales_lie_by_rows<GradInput>}},
    {{by_rows, replicated, replicated, replicated}, {by_rows}, {.of = has_one_scale<GradInput>}},
    {{by_columns, replicated, by_columns, replicated}, {partial}},
    {{replicated, replicated, by_rows, replicated}, {by_columns}, {.of = has_one_scale<GradInput>}},
    {{replicated, replicated, by_rows, by_rows}, {by_columns}, {.of = has_scales_of_rows<GradInput>}},
};

constexpr Way linear_fp8_grad_weight_ways[] = {
    {{by_columns, by_rows, by_columns, by_rows}, {partial}, {.over = sequence_axes}},
    {{by_columns, replicated, by_columns, replicated}, {partial}},
    {{by_rows, replicated, replicated, replicated}, {by_rows}},
    {{replicated, replicated, by_rows, replicated}, {by_columns}},
};

}  // namespace

std::span<const OpType> fp8_ops() {
  static constexpr OpType rows[] = {
      {.record = record<Fp8Quantize>(),
       .workspace = quantize_workspace,
       .straight_through = true,
       .ways = quantize_ways,
       .groups = quantize_groups,
       .replicated_only = true,
       .fit = fit_quantize,
       .forward = quantize_forward<Fp8Quantize>},
      {.record = record<Fp8QuantizeBoth>(),
       .workspace = quantize_workspace,
       .straight_through = true,
       .ways = quantize_both_ways,
       .groups = quantize_groups,
       .replicated_only = true,
       .fit = fit_quantize,
       .forward = quantize_forward<Fp8QuantizeBoth>,
       .without_third = Fp8Quantize::op},
      {.record = record<Fp8Magnitudes>(), .workspace = quantize_workspace, .ways = magnitudes_ways},
      {.record = record<Fp8Transpose>(), .ways = transpose_ways},
      {.record = record<LinearFp8>(),
       .adjoint = linear_fp8_adjoint,
       .flops = fp8_flops,
       .workspace = fp8_workspace,
       .ways = linear_fp8_ways,
       .replicated_only = true,
       .fit = fit_linear_fp8},
      {.record = record<LinearFp8GradInput>(),
       .flops = fp8_flops,
       .workspace = fp8_workspace,
       .ways = linear_fp8_grad_input_ways},
      {.record = record<LinearFp8GradWeight>(),
       .flops = fp8_flops,
       .workspace = fp8_workspace,
       .for_weights = true,
       .ways = linear_fp8_grad_weight_ways},
      {.record = record<Fp8Largest>()},
      {.record = record<Fp8Scales>()},
      {.record = record<Fp8Encode>()},
  };
  return rows;
}

}  // namespace ztrain::program
