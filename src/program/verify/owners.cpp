#include <algorithm>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernels/preference/record.hpp"
#include "kernels/step/record.hpp"
#include "program/passes/final_passes.hpp"
#include "program/verify/spread.hpp"

namespace ztrain::program {
namespace {

/// Elements [begin, end) of a unit's flat range.
struct Run {
  std::int64_t begin, end;
};

std::int64_t common(Run a, Run b) {
  return std::max<std::int64_t>(0, std::min(a.end, b.end) - std::max(a.begin, b.begin));
}

void check_norm(const Program& program, OpId id, const Coordinate& own) {
  const Op& op = program.op(id);
  const int unit = program.tensor(program.storage(op.inputs[SumSquares::gradient])).unit;
  const std::int64_t count = elements(program.tensor(op.inputs[SumSquares::gradient]).shape);
  const bool shard = count < program.unit_elements[at(unit)];
  const AxisSet cut_over = program.unit_cuts[at(unit)].shard_axes;
  const std::int64_t first = shard ? own.index_in(cut_over) * count : 0;
  const std::vector<Elements> pieces = record_of<SumSquares>(op.attributes).pieces;
  for (const ParameterPlace& p : program.parameters) {
    if (p.unit != unit || !p.trainable) continue;
    const Run all{p.begin, p.begin + p.count};
    std::int64_t counted = 0;
    for (const Elements& piece : pieces)
      counted += common(all, {first + piece.begin, first + piece.begin + piece.count});
    AxisSet copies = token_axes.without(cut_over) | Axis::tensor;
    if (p.split >= 0) copies = copies.without(p.split_over);
    const bool copy = own.index_in(copies) > 0 || (p.other_rank >= 0 && own[Axis::pipeline] > p.other_rank);
    const std::int64_t wanted = copy ? 0 : common(all, {first, first + count});
    REQUIRE(counted == wanted, "{}: this rank's norm counts {} elements of {}, and it speaks for {}",
            describe(program, id), counted, p.name, wanted);
  }
}

/// of_micro_batches: whether ranks that share a micro-batch's tokens have the same loss.
void check_counted(const Program& program, OpId id, bool counted, bool of_micro_batches) {
  const Coordinate own(program.mesh, program.rank);
  const bool counts = own[Axis::tensor] == 0 && (!of_micro_batches || own.index_in(context_axes) == 0);
  REQUIRE(counted == counts, "{}: the loss is {} over {}", describe(program, id),
          counts ? "not counted" : "counted more than once",
          of_micro_batches ? "tensor or context" : "tensor");
}

void check_losses(const Program& program, OpId id) {
  const Op& op = program.op(id);
  if (op.type == PreferenceReport::op) {
    const auto report = record_of<PreferenceReport>(op.attributes);
    return check_counted(program, id, report.counts, !report.of_tokens);
  }
  const auto record = record_of<StepPartials>(op.attributes);
  if (record.losses > 0) check_counted(program, id, record.counts_loss, record.of_micro_batches);
}

}  // namespace

void verify_owners(const Program& program) {
  const Coordinate own(program.mesh, program.rank);
  for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id)
    if (looks_at_terms(program.op(id)))
      continue;
    else if (program.op(id).type == SumSquares::op)
      check_norm(program, id, own);
    else if (program.op(id).type == StepPartials::op || program.op(id).type == PreferenceReport::op)
      check_losses(program, id);
}

}  // namespace ztrain::program
