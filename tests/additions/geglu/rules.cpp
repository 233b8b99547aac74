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

constexpr Way geglu_ways[] = {
    {{by_rows, by_rows}, {by_rows}},
    {{by_columns, by_columns}, {by_columns}},
};

constexpr Way geglu_grad_ways[] = {
    {{by_rows, by_rows, by_rows}, {by_rows}},
    {{by_columns, by_columns, by_columns}, {by_columns}},
    {{replicated, replicated, partial}, {partial}},
};

}  // namespace

std::span<const OpType> geglu_ops() {
  static constexpr OpType rows[] = {
      {.record = record<Geglu>(), .adjoint = geglu_adjoint, .ways = geglu_ways},
      {.record = record<GegluGrad>(), .ways = geglu_grad_ways},
  };
  return rows;
}

}  // namespace ztrain::program
