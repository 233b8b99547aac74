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

}  // namespace

std::span<const OpType> rope_ops() {
  static constexpr OpType rows[] = {
      {.record = record<RopeTable>(), .placings = "R>R I>I 0>0"},
      {.record = record<Rope>(), .adjoint = rope_adjoint, .overlay = 1, .placings = "RR>R II>I 00>0 1R>1"},
  };
  return rows;
}

}  // namespace ztrain::program
