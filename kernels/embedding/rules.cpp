// Rows of a table, by index.

#include "kernels/embedding/record.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

void embedding_adjoint(Tape& t, const model::Node& n) {
  const GradientTarget dw = t.target(n.inputs[Embedding::weight]);
  const auto forward = record_of<Embedding>(n.attributes);
  t.emit(EmbeddingGrad{forward.first_row, forward.rows, dw.accumulate}, n.name,
         {t.tensor(n.inputs[Embedding::tokens]), t.gradient(n.outputs[Embedding::y])}, {dw.tensor});
  t.reads(dw);
}

/// The rows of the table that this rank has.
void fit_embedding(model::Node& node, const PartOfNode& part) {
  if (!part.is_split(Embedding::weight, 0)) return;
  edit<Embedding>(node.attributes, [&](Embedding& e) {
    e.first_row = part.own(Embedding::weight).begin;
    e.rows = part.inputs[Embedding::weight].whole[0];
  });
}

}  // namespace

std::span<const OpType> embedding_ops() {
  static constexpr OpType rows[] = {
      {.record = record<Embedding>(),
       .adjoint = embedding_adjoint,
       .placings = "RR>R II>I 0R>0 R0>P R1>1",
       .fit = fit_embedding},
      {.record = record<EmbeddingGrad>(), .for_weights = true},
      {.record = record<SelectRow>(), .placings = "RR>R II>I 1R>1"},
  };
  return rows;
}

}  // namespace ztrain::program
