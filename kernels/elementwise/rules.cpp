#include "kernels/communication/record.hpp"
#include "kernels/elementwise/record.hpp"

#include "kernels/elementwise/record.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

void add_adjoint(Tape& t, const model::Node& n) {
  for (const auto input : n.inputs) t.pass(input, t.gradient(n.outputs[Add::sum]));
}

void scale_adjoint(Tape& t, const model::Node& n) {
  t.contribute(n.inputs[Scale::x], [&](TensorId dx) {
    t.emit(record_of<Scale>(n.attributes), n.name, {t.gradient(n.outputs[Scale::y])}, {dx});
  });
}

}  // namespace

std::span<const OpType> elementwise_ops() {
  static constexpr OpType rows[] = {
      {.record = record<Add>(), .adjoint = add_adjoint, .overlay = 2, .placings = "RR>R II>I 00>0 11>1 PP>P"},
      {.record = record<Scale>(), .adjoint = scale_adjoint, .overlay = 1, .placings = "R>R I>I 0>0 1>1 P>P"},
      {.record = record<Copy>(), .adjoint = pass_gradient},
      {.record = record<OwnRows>()},
      {.record = record<Cast>()},
      {.record = record<ZeroGaps>()},
      {.record = record<Release>()},
  };
  return rows;
}

}  // namespace ztrain::program
