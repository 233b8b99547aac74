#include "kernels/rope/record.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

void rope_adjoint(Tape& t, const model::Node& n) {
  auto rope = record_of<Rope>(n.attributes);
  rope.inverse = !rope.inverse;
  t.contribute(n.inputs[Rope::x], [&](TensorId dx) {
    t.emit(rope, n.name, {t.gradient(n.outputs[Rope::y]), t.tensor(n.inputs[Rope::table])}, {dx});
  });
}

constexpr Way rope_table_ways[] = {
    {{by_rows}, {by_rows}},
};

constexpr Way rope_ways[] = {
    {{by_rows, by_rows}, {by_rows}},
    {{by_columns, replicated}, {by_columns}},
    {{partial, replicated}, {partial}},
};

}  // namespace

std::span<const OpType> rope_ops() {
  static constexpr OpType rows[] = {
      {.record = record<RopeTable>(), .ways = rope_table_ways},
      {.record = record<Rope>(), .adjoint = rope_adjoint, .overlay = 1, .ways = rope_ways},
  };
  return rows;
}

}  // namespace ztrain::program
