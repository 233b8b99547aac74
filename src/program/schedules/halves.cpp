#include "program/schedules/halves.hpp"

#include <algorithm>
#include <iterator>

#include "base/shape.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::program {

std::vector<Op> take_weights_half(Program& program, std::size_t first, const std::vector<TensorId>& kept,
                                  LateWeights late) {
  enum class Reader : std::uint8_t { nobody, weights, inputs };
  std::vector<Reader> reader(program.tensors.size(), Reader::nobody);
  for (const TensorId t : kept) reader[at(t)] = Reader::inputs;
  std::vector<bool> again(program.tensors.size(), false);
  for (std::size_t i = first; i < program.ops.size(); ++i)
    if (const Op& op = program.ops[i]; op.action.kind == ActionKind::recompute)
      for (const TensorId t : op.outputs) again[at(program.storage(t))] = true;
  const auto reads_again = [&](const Op& op) {
    return std::ranges::any_of(op.inputs, [&](TensorId t) { return again[at(program.storage(t))]; });
  };
  const auto waits = [&](const Op& op) {
    if (op_type(op.type).for_weights) return late == LateWeights::all || !reads_again(op);
    // What is recomputed is read by both halves, and what nobody reads is not worth keeping.
    if (op.action.kind != ActionKind::backward) return false;
    const auto of = [&](Reader who) {
      return std::ranges::any_of(op.outputs, [&](TensorId t) { return reader[at(t)] == who; });
    };
    return of(Reader::weights) && !of(Reader::inputs);
  };
  std::vector<Op> later, now;
  for (std::size_t i = program.ops.size(); i-- > first;) {
    Op& op = program.ops[i];
    const bool for_weights = waits(op);
    for (const TensorId t : op.inputs)
      reader[at(t)] = std::max(reader[at(t)], for_weights ? Reader::weights : Reader::inputs);
    (for_weights ? later : now).push_back(std::move(op));
  }
  std::ranges::reverse(later);
  program.ops.resize(first);
  std::move(now.rbegin(), now.rend(), std::back_inserter(program.ops));
  return later;
}

}  // namespace ztrain::program
