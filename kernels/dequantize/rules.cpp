// Linear layers whose weight is kept as codes: the weight is decoded directly before each product, forward
// and backward, into a tensor that lives for that product alone.

#include <fmt/format.h>

#include "kernels/dequantize/record.hpp"
#include "kernels/linear/record.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

Dequantize decoding(const LinearQuantized& layer) {
  Dequantize record;
  record.code = layer.code;
  record.nested = layer.nested;
  return record;
}

void layer_forward(Program& p, const Operands& operands, const model::Node& n) {
  using Op = LinearQuantized;
  const auto layer = record_of<Op>(n.attributes);
  const std::vector<TensorId>& in = operands.inputs;
  const TensorId weight = p.add({.name = fmt::format("dequantized.{}.{}", n.name, operands.action.micro),
                                 .dtype = p.tensor(in[Op::x]).dtype,
                                 .shape = p.tensor(in[Op::weight]).shape});
  add_op(p, decoding(layer), n.name, operands.action, {in[Op::weight], in[Op::statistics]}, {weight});
  std::vector<TensorId> inputs{in[Op::x], weight};
  if (in.size() > Op::bias) inputs.push_back(in[Op::bias]);
  add_op(p, Linear{.adds_bias = layer.adds_bias}, n.name, operands.action, std::move(inputs),
         operands.outputs);
}

void layer_adjoint(Tape& t, const model::Node& n) {
  using Op = LinearQuantized;
  const TensorId dy = t.gradient(n.outputs[Op::y]);
  if (const model::ValueId x = n.inputs[Op::x]; t.wants(x)) {
    const TensorId codes = t.tensor(n.inputs[Op::weight]);
    const TensorId weight = t.temporary("dequantized." + n.name, t.info(dy).dtype, t.info(codes).shape);
    t.emit(decoding(record_of<Op>(n.attributes)), n.name, {codes, t.tensor(n.inputs[Op::statistics])},
           {weight});
    const GradientTarget dx = t.target(x);
    t.emit(LinearGradInput{{dx.accumulate}}, n.name, {dy, weight}, {dx.tensor});
    t.reads(dx);
  }
  if (n.inputs.size() <= Op::bias || !t.wants(n.inputs[Op::bias])) return;
  const GradientTarget db = t.target(n.inputs[Op::bias]);
  t.emit(LinearGradBias{{db.accumulate}}, n.name, {dy}, {db.tensor});
  t.reads(db);
}

/// The bias of a sum is added by one rank.
void fit_layer(model::Node& node, const PartOfNode& part) {
  edit<LinearQuantized>(node.attributes, [&](LinearQuantized& linear) {
    if (part.output == partial && node.inputs.size() > LinearQuantized::bias)
      linear.adds_bias = part.index == 0 ? 1 : 0;
  });
}

// The ways are those of a linear layer; every rank has all statistics.
constexpr Way layer_ways[] = {
    {{invariant, invariant, replicated, invariant}, {invariant}},
    {{by_rows, replicated, replicated, replicated}, {by_rows}},
    {{replicated, by_rows, replicated, by_rows}, {by_columns}},
    {{by_columns, by_columns, replicated, invariant}, {partial}},
    {{partial, replicated, replicated, invariant}, {partial}},
};

constexpr Way dequantize_ways[] = {
    {{by_rows, replicated}, {by_rows}},
    {{by_columns, replicated}, {by_columns}},
};

}  // namespace

std::span<const OpType> dequantize_ops() {
  static constexpr OpType rows[] = {
      {.record = record<LinearQuantized>(),
       .adjoint = layer_adjoint,
       .ways = layer_ways,
       .fit = fit_layer,
       .forward = layer_forward},
      {.record = record<Dequantize>(), .ways = dequantize_ways},
      {.record = record<EncodeBlocks>()},
      {.record = record<DecodeBlocks>()},
      {.record = record<SumCodes>()},
  };
  return rows;
}

}  // namespace ztrain::program
