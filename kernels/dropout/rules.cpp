#include "base/error.hpp"
#include "kernels/dropout/record.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

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

/// The tokens of the step that the op sees. A step's micro-batches are numbered as the data are dealt: over
/// ranks, then over accumulation.
void number_dropout(const Program& program, Op& op) {
  const Coordinate at(program.mesh, program.rank);
  const std::int64_t batch = op.action.micro * program.mesh.size(sequence_axes) + at.index_in(sequence_axes);
  edit<Dropout>(op.attributes, [&](Dropout& mask) {
    const std::int64_t own = program.tensor(op.inputs[Dropout::x]).shape[0];
    const std::int64_t all = mask.part_of > 0 ? mask.part_of : own;
    const std::vector<TokenRun> runs = program.token_order.runs(all, mask.part_begin, mask.part_begin + own);
    ASSERT(runs.size() <= 2, "{}: tokens in {} runs", op.name, runs.size());
    mask.first_token = batch * (program.tokens > 0 ? program.tokens : all) + runs.front().token;
    if (runs.size() == 1) return;
    mask.gap_at = runs.front().count;
    mask.gap = runs.back().token - runs.front().token - mask.gap_at;
  });
}

// Columns that two axes cut are counted by the outer one first, and fit_dropout does not know which that is.
constexpr Way dropout_ways[] = {
    {{by_rows, replicated}, {by_rows}},
    {{by_columns, replicated}, {by_columns}, {.nodes_over = Axis::tensor}},
    {{partial, replicated}, {partial}},
};

}  // namespace

std::span<const OpType> dropout_ops() {
  static constexpr OpType rows[] = {
      {.record = record<Dropout>(),
       .adjoint = dropout_adjoint,
       .training_only = true,
       .ways = dropout_ways,
       .fit = fit_dropout,
       .number = number_dropout},
  };
  return rows;
}

}  // namespace ztrain::program
