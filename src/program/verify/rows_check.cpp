#include "program/verify/rows_check.hpp"

#include <fmt/format.h>

#include "program/ops/conversion_records.hpp"

namespace ztrain::program {

bool RowsCheck::concerns(const Op& op) const {
  return is_part(op.inputs[0]) || is_part(op.outputs[0]);
}

int RowsCheck::part_of(TensorId t, int parts) const {
  const Tensor &part = program_.tensor(t), &whole = program_.tensor(program_.storage(t));
  const std::int64_t bytes = part.bytes();
  return bytes > 0 && bytes * parts == whole.bytes() && part.offset % bytes == 0
             ? static_cast<int>(part.offset / bytes)
             : -1;
}

int RowsCheck::rank_before(Axis axis, int by) const {
  const int ranks = program_.mesh[axis], own = Coordinate(program_.mesh, program_.rank)[axis];
  return ((own - by) % ranks + ranks) % ranks;
}

RowsCheck::Result RowsCheck::shifted(const Op& op, Axis axis, Spread from) {
  const TensorId x = op.inputs[0], y = op.outputs[0];
  const int owner = rank_before(axis, op.comm.peer);
  if (from != 'P') return put(y, axis, from, owner);
  const int to = rank_before(axis, -op.comm.peer), part = part_of(x, program_.mesh[axis]);
  if (part != to)
    return {from, fmt::format("'{}' is part {} of a sum, and is sent to rank {}", program_.tensor(x).name,
                              part, to)};
  givers_[{program_.storage(y), is_part(y) ? program_.tensor(y).offset : 0}] = owner;
  return {'K'};
}

std::string RowsCheck::misfit(const Op& op) const {
  if (op.type != Linear::op && op.type != LinearGradInput::op) return "";
  const TensorId x = op.inputs[0], y = op.outputs[0];
  if (!is_part(x) && !is_part(y)) return "";
  const std::int64_t own = program_.tensor(x).bytes();
  const auto parts = static_cast<int>(own > 0 ? program_.tensor(program_.storage(x)).bytes() / own : 0);
  if (parts > 0 && part_of(x, parts) >= 0 && part_of(x, parts) == part_of(y, parts)) return "";
  return fmt::format("'{}' and '{}' are not the same of {} parts", program_.tensor(x).name,
                     program_.tensor(y).name, parts);
}

RowsCheck::Result RowsCheck::joined(const Op& op, Axis axis, Spread own, Spread others) const {
  const auto axes = AxisSet::from_bits(static_cast<std::uint32_t>(record_of<OverAxes>(op.attributes).axes));
  if (axes.contains(axis))
    return op.type == SumOfRanks::op ? sum(op, axis, own)
                                     : put(op.outputs[OwnRows::y], axis, own, rank_before(axis, 0));
  if (own == others) return {own};
  return {own, fmt::format("what other ranks sent is {}, and this rank's part {}", words_for(others),
                           words_for(own))};
}

/// That all parts are there when the whole is read, others prove: what nobody wrote is not read.
RowsCheck::Result RowsCheck::put(TensorId to, Axis axis, Spread from, int owner) const {
  const std::string& name = program_.tensor(to).name;
  if (from != '0') return {from, fmt::format("'{}' is put together from what is {}", name, words_for(from))};
  const int part = part_of(to, program_.mesh[axis]);
  if (part == owner) return {'E'};
  return {from, fmt::format("the rows of rank {} are put in place {} as '{}'", owner, part, name)};
}

RowsCheck::Result RowsCheck::sum(const Op& op, Axis axis, Spread from) const {
  const int ranks = program_.mesh[axis], own = rank_before(axis, 0);
  const TensorId mine = op.inputs[SumOfRanks::own], others = op.inputs[SumOfRanks::others];
  const Tensor &part = program_.tensor(mine), &rest = program_.tensor(others);
  if (from != 'P' || part_of(mine, ranks) != own)
    return {from, fmt::format("'{}' is {}, and not this rank's part of a sum", part.name, words_for(from))};
  if (rest.bytes() != (ranks - 1) * part.bytes() || is_part(others))
    return {from, fmt::format("'{}' does not hold a part for each other rank", rest.name)};
  for (int slot = 0; slot + 1 < ranks; ++slot) {
    const auto it = givers_.find({others, slot * part.bytes()});
    const int wanted = slot < own ? slot : slot + 1;
    if (it == givers_.end() || it->second != wanted)
      return {from, fmt::format("slot {} of '{}' does not hold what rank {} gives", slot, rest.name, wanted)};
  }
  return {'0'};
}

}  // namespace ztrain::program
