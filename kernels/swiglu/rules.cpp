#include "kernels/swiglu/record.hpp"
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

}  // namespace

std::span<const OpType> swiglu_ops() {
  static constexpr OpType rows[] = {
      {.record = record<Swiglu>(), .adjoint = swiglu_adjoint, .placings = "RR>R II>I 00>0 11>1"},
      {.record = record<SwigluGrad>(), .overlay = 1},
  };
  return rows;
}

}  // namespace ztrain::program
