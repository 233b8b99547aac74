#include "program/ir/order.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernels/elementwise/record.hpp"
#include "kernels/optimizer/record.hpp"

namespace ztrain::program {

ByteRange byte_range(const Program& program, TensorId id) {
  ASSERT(id >= 0 && at(id) < program.tensors.size(), "program '{}' names tensor {}, but it has {} tensors",
         program.name, id, program.tensors.size());
  const Tensor& tensor = program.tensor(id);
  const std::int64_t bytes = tensor.bytes();
  if (tensor.base == no_tensor) return {id, 0, bytes};
  const std::int64_t moves = (program.repeat.times - 1) * tensor.step;
  return {tensor.base, tensor.offset + std::min<std::int64_t>(0, moves),
          tensor.offset + std::max<std::int64_t>(0, moves) + bytes};
}

bool is_release(const Op& op) {
  return op.type == Release::op;
}

bool is_settling(const Op& op) {
  return op.type == OptimizerStep::op &&
         record_of<OptimizerStep>(op.attributes).ahead == OptimizerStep::settles;
}

std::vector<ByteRange> written_ranges(const Program& program, const Op& op, TensorId output) {
  const ByteRange all = byte_range(program, output);
  std::vector<ByteRange> ranges;
  const std::int64_t size = size_of(program.tensor(output).dtype);
  const auto add = [&](std::int64_t begin, std::int64_t count) {
    ranges.push_back({all.base, all.begin + begin * size, all.begin + (begin + count) * size});
  };
  if (op.type == ZeroGaps::op) {
    for (const Elements& gap : record_of<ZeroGaps>(op.attributes).gaps) add(gap.begin, gap.count);
  } else if (op.type == OptimizerStep::op && output == op.outputs[OptimizerStep::parameter]) {
    const auto step = record_of<OptimizerStep>(op.attributes);
    if (!step.whole) return {all};
    for (const SteppedPiece& piece : step.pieces) add(piece.begin, piece.count);
  } else {
    ranges.push_back(all);
  }
  return ranges;
}

Order::Order(const Program& program) : program_(program), clocks_(program.ops.size(), no_ops) {}

PerStream Order::start_of(const Op& op) const {
  PerStream clock = no_ops;
  if (const OpId previous = tail_[at(op.stream)]; previous != no_op) wait_for(clock, previous);
  return clock;
}

void Order::wait_for(PerStream& clock, OpId earlier) const {
  merge(clock, clocks_[at(earlier)]);
  merge(clock, earlier, program_);
}

void Order::store(OpId id, const PerStream& clock) {
  clocks_[at(id)] = clock;
  tail_[at(program_.op(id).stream)] = id;
}

void Order::append(OpId id) {
  const Op& op = program_.op(id);
  PerStream clock = start_of(op);
  for (const OpId earlier : op.after) wait_for(clock, earlier);
  store(id, clock);
}

std::vector<OpId> Order::append_after(OpId id, const PerStream& wanted) {
  const Op& op = program_.op(id);
  PerStream clock = start_of(op);
  PerStream latest_first = wanted;
  std::sort(latest_first.begin(), latest_first.end(), std::greater<>());
  // An op can imply only earlier ones, so what the latest implies is known before the others are looked at.
  std::vector<OpId> after;
  for (const OpId earlier : latest_first) {
    if (earlier == no_op || earlier <= clock[at(program_.op(earlier).stream)]) continue;
    if (program_.op(earlier).stream == op.stream) continue;
    wait_for(clock, earlier);
    after.push_back(earlier);
  }
  std::reverse(after.begin(), after.end());
  store(id, clock);
  return after;
}

}  // namespace ztrain::program
