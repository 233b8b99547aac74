// Element by element.

#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

void swiglu_adjoint(Tape& t, const model::Node& n) {
  std::vector<TensorId> inputs = t.tensors(n.inputs);
  inputs.push_back(t.gradient(n.outputs[Swiglu::y]));
  t.contribute(n.inputs,
               [&](const std::vector<TensorId>& d) { t.emit(SwigluGrad{}, n.name, std::move(inputs), d); });
}

void add_adjoint(Tape& t, const model::Node& n) {
  for (const auto input : n.inputs) t.pass(input, t.gradient(n.outputs[Add::sum]));
}

void scale_adjoint(Tape& t, const model::Node& n) {
  t.contribute(n.inputs[Scale::x], [&](TensorId dx) {
    t.emit(record_of<Scale>(n.attributes), n.name, {t.gradient(n.outputs[Scale::y])}, {dx});
  });
}

/// The same mask again: it is a function of the constants and the step.
void dropout_adjoint(Tape& t, const model::Node& n) {
  t.contribute(n.inputs[Dropout::x], [&](TensorId dx) {
    t.emit(record_of<Dropout>(n.attributes), n.name, {t.gradient(n.outputs[Dropout::y]), t.scalars()}, {dx});
  });
}

/// The tokens, or columns, that this rank has, which masks are drawn by.
void fit_dropout(model::Node& node, const PartOfNode& part) {
  const bool tokens = part.is_split(Dropout::x, 0);
  if (!tokens && !part.is_split(Dropout::x, 1)) return;
  edit<Dropout>(node.attributes, [&](Dropout& d) {
    // What these axes cut may be a part by others.
    if (!tokens) {
      if (d.columns == 0) d.columns = part.inputs[Dropout::x].whole[1];
      d.first_column += part.own(Dropout::x).begin;
      return;
    }
    if (d.part_of == 0) d.part_of = part.inputs[Dropout::x].whole[0];
    d.part_begin += part.own(Dropout::x).begin;
  });
}

}  // namespace

void pass_gradient(Tape& t, const model::Node& n) {
  t.pass(n.inputs[0], t.gradient(n.outputs[0]));
}

std::span<const OpType> pointwise_ops() {
  static constexpr OpType rows[] = {
      {.record = record<Swiglu>(), .adjoint = swiglu_adjoint, .placings = "RR>R II>I 00>0 11>1"},
      {.record = record<SwigluGrad>(), .overlay = 1},
      {.record = record<Add>(), .adjoint = add_adjoint, .overlay = 2, .placings = "RR>R II>I 00>0 11>1 PP>P"},
      {.record = record<Scale>(), .adjoint = scale_adjoint, .overlay = 1, .placings = "R>R I>I 0>0 1>1 P>P"},
      {.record = record<Dropout>(),
       .adjoint = dropout_adjoint,
       .training_only = true,
       .placings = "R>R I>I 0>0 1>1 P>P",
       .fit = fit_dropout},
      {.record = record<Copy>(), .adjoint = pass_gradient},
  };
  return rows;
}

}  // namespace ztrain::program
