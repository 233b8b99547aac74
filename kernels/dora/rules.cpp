#include <fmt/format.h>

#include "kernels/dora/record.hpp"
#include "kernels/linear/record.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

/// The product of the factors, its sum with the weight, and the squares.
double dora_squares_flops(const Program& p, const Op& op) {
  using enum DoraSquares::In;
  return 2 * dim(p, op.inputs[weight], 0) * dim(p, op.inputs[weight], 1) * (dim(p, op.inputs[a], 0) + 2);
}

void decoded_dora_squares(Program& p, const Operands& operands, const model::Node& n) {
  using Op = DoraSquaresQuantized;
  const auto node = record_of<Op>(n.attributes);
  const std::vector<TensorId>& in = operands.inputs;
  const TensorId weight = p.add({.name = fmt::format("dequantized.{}.{}", n.name, operands.action.micro),
                                 .dtype = p.tensor(in[Op::a]).dtype,
                                 .shape = p.tensor(in[Op::weight]).shape});
  Dequantize decoding;
  decoding.code = node.code;
  decoding.nested = node.nested;
  add_op(p, decoding, n.name, operands.action, {in[Op::weight], in[Op::statistics]}, {weight});
  add_op(p, DoraSquares{{node.scale}}, n.name, operands.action, {weight, in[Op::a], in[Op::b]},
         operands.outputs);
}

/// The squares are a constant of the backward.
void dora_scale_adjoint(Tape& t, const model::Node& n) {
  const TensorId dy = t.gradient(n.outputs[DoraScale::y]), squares = t.tensor(n.inputs[DoraScale::squares]);
  const model::ValueId x = n.inputs[DoraScale::x], magnitude = n.inputs[DoraScale::magnitude];
  if (t.wants(x))
    t.contribute(x, [&](TensorId dx) {
      t.emit(DoraScale{}, n.name, {dy, t.tensor(magnitude), squares}, {dx});
    });
  if (t.wants(magnitude)) {
    const GradientTarget dm = t.target(magnitude);
    t.emit(DoraGradMagnitude{dm.accumulate}, n.name, {dy, t.tensor(x), squares}, {dm.tensor});
    t.reads(dm);
  }
  if (n.inputs.size() <= DoraScale::bias || !t.wants(n.inputs[DoraScale::bias])) return;
  const GradientTarget db = t.target(n.inputs[DoraScale::bias]);
  t.emit(LinearGradBias{{db.accumulate}}, n.name, {dy}, {db.tensor});
  t.reads(db);
}

/// The bias of a sum is added by one rank.
void fit_dora_scale(model::Node& node, const PartOfNode& part) {
  edit<DoraScale>(node.attributes, [&](DoraScale& scale) {
    if (part.output == partial && node.inputs.size() > DoraScale::bias)
      scale.adds_bias = part.index == 0 ? 1 : 0;
  });
}

bool every_rank_adds_dora_bias(const Attributes& a) {
  return record_of<DoraScale>(a).adds_bias < 0;
}

// Squares of some columns are parts of a sum. A factor that every rank has whole goes either way, because no
// gradient comes of it here.
constexpr Way dora_squares_ways[] = {
    {{by_rows, replicated, by_rows}, {by_rows}},
    {{by_rows, invariant, by_rows}, {by_rows}},
    {{by_columns, by_columns, replicated}, {partial}},
    {{by_columns, by_columns, invariant}, {partial}},
};

constexpr Way quantized_dora_squares_ways[] = {
    {{invariant, replicated, invariant, invariant}, {invariant}},
    {{by_rows, replicated, replicated, by_rows}, {by_rows}},
    {{by_rows, replicated, invariant, by_rows}, {by_rows}},
    {{by_columns, replicated, by_columns, replicated}, {partial}},
    {{by_columns, replicated, by_columns, invariant}, {partial}},
};

constexpr Way dora_scale_ways[] = {
    {{by_rows, replicated, replicated, replicated}, {by_rows}},
    {{by_columns, by_rows, by_rows, by_rows}, {by_columns}, {.says = every_rank_adds_dora_bias}},
    {{partial, replicated, replicated, invariant}, {partial}},
};

constexpr Way grad_magnitude_ways[] = {
    {{by_rows, by_rows, replicated}, {partial}},
    {{by_columns, by_columns, by_rows}, {by_rows}},
    {{partial, replicated, replicated}, {partial}},
    {{replicated, partial, replicated}, {partial}},
};

}  // namespace

std::span<const OpType> dora_ops() {
  static constexpr OpType rows[] = {
      {.record = record<DoraSquares>(), .flops = dora_squares_flops, .ways = dora_squares_ways},
      {.record = record<DoraSquaresQuantized>(),
       .ways = quantized_dora_squares_ways,
       .forward = decoded_dora_squares},
      {.record = record<DoraScale>(),
       .adjoint = dora_scale_adjoint,
       .ways = dora_scale_ways,
       .fit = fit_dora_scale},
      {.record = record<DoraGradMagnitude>(), .for_weights = true, .ways = grad_magnitude_ways},
  };
  return rows;
}

}  // namespace ztrain::program
