#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"
#include "tests/additions/geglu/record.hpp"

namespace ztrain::program {
namespace {

void geglu_adjoint(Tape& t, const model::Node& n) {
  std::vector<TensorId> inputs = t.tensors(n.inputs);
  inputs.push_back(t.gradient(n.outputs[Geglu::y]));
  t.contribute(n.inputs,
               [&](const std::vector<TensorId>& d) { t.emit(GegluGrad{}, n.name, std::move(inputs), d); });
}

}  // namespace

std::span<const OpType> geglu_ops() {
  static constexpr OpType rows[] = {
      {.record = record<Geglu>(), .adjoint = geglu_adjoint, .placings = "RR>R II>I 00>0 11>1"},
      {.record = record<GegluGrad>()},
  };
  return rows;
}

}  // namespace ztrain::program
