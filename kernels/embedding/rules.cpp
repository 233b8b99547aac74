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

bool has_some_rows(const Attributes& a) {
  return record_of<Embedding>(a).rows > 0;
}
bool adds_to_some_rows(const Attributes& a) {
  return record_of<EmbeddingGrad>(a).rows > 0;
}
bool adds_to_all_rows(const Attributes& a) {
  return record_of<EmbeddingGrad>(a).rows == 0;
}

constexpr Way embedding_ways[] = {
    {{by_rows, replicated}, {by_rows}},
    {{replicated, by_rows}, {partial}, {.says = has_some_rows}},
    {{replicated, by_columns}, {by_columns}},
};

constexpr Way embedding_grad_ways[] = {
    {{by_rows, by_rows}, {partial}},
    {{replicated, replicated}, {by_rows}, {.says = adds_to_some_rows}},
    {{replicated, by_columns}, {by_columns}, {.says = adds_to_all_rows}},
    {{replicated, partial}, {partial}, {.says = adds_to_all_rows}},
};

constexpr Way select_row_ways[] = {
    {{by_columns, replicated}, {by_columns}},
};

}  // namespace

std::span<const OpType> embedding_ops() {
  static constexpr OpType rows[] = {
      {.record = record<Embedding>(),
       .adjoint = embedding_adjoint,
       .ways = embedding_ways,
       .fit = fit_embedding},
      {.record = record<EmbeddingGrad>(), .for_weights = true, .ways = embedding_grad_ways},
      {.record = record<SelectRow>(), .ways = select_row_ways},
  };
  return rows;
}

}  // namespace ztrain::program
