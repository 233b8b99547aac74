#pragma once
// What the check of placements knows of communication that goes part by part beside products: whose rows are
// put where, and whether a sum has the rows of every rank once. It shares nothing with the pass that
// cuts the communication (program/passes/overlap.cpp).

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "kernels/communication/record.hpp"
#include "kernels/linear/record.hpp"
#include "program/verify/spread.hpp"

namespace ztrain::program {

class RowsCheck {
 public:
  explicit RowsCheck(const Program& program)
      : program_(program), cut_by_ranks_(std::ranges::any_of(program.ops, [](const Op& op) {
          return op.type == OwnRows::op || op.type == SumOfRanks::op;
        })) {}

  /// Whether a shift moves a part of the rows of something, or to such a part.
  bool concerns(const Op& op) const { return is_part(op.inputs[0]) || is_part(op.outputs[0]); }
  /// Returns how y is spread after a shift. If each rank has rows of its own, those of another rank arrive in
  /// y. If x is a part of a sum, it has to go to the rank that owns those rows.
  Told shifted(const Op& op, Axis axis, Spread from) {
    const TensorId x = op.inputs[0], y = op.outputs[0];
    const int owner = rank_before(axis, op.comm.peer);
    if (from != Spread::sum) return put(y, axis, from, owner);
    const int to = rank_before(axis, -op.comm.peer), part = part_of(x, program_.mesh[axis]);
    if (part != to)
      return {from, fmt::format("'{}' is part {} of a sum, and is sent to rank {}", program_.tensor(x).name,
                                part, to)};
    givers_[{program_.storage(y), is_part(y) ? program_.tensor(y).offset : 0}] = owner;
    return {Spread::around};
  }

  /// Of own_rows or sum_of_ranks: what this rank's rows become with those of the others. Over an axis that it
  /// does not span they are what they were, and the others alike.
  Told joined(const Op& op, Axis axis, Spread own, Spread others) const {
    const auto axes = AxisSet::from_bits(static_cast<std::uint32_t>(record_of<OverAxes>(op.attributes).axes));
    if (axes.contains(axis))
      return op.type == SumOfRanks::op ? sum(op, axis, own)
                                       : put(op.outputs[OwnRows::y], axis, own, rank_before(axis, 0));
    if (own == others) return {own};
    return {own, fmt::format("what other ranks sent is {}, and this rank's part {}", words_for(others),
                             words_for(own))};
  }

  /// What is wrong with a product of a part of the rows, or "": they are to be the same of what it reads and
  /// of what it writes.
  std::string misfit(const Op& op) const {
    if (op.type != Linear::op && op.type != LinearGradInput::op) return "";
    const TensorId x = op.inputs[0], y = op.outputs[0];
    if (!is_part(x) && !is_part(y)) return "";
    // A tile of a feed-forward (tiles/tile.hpp) has tensors of its own beside rows of whole ones. A Program
    // whose communication is cut by ranks has no tiles.
    const auto rows = [&](TensorId t) { return program_.tensor(t).shape[0]; };
    if (!cut_by_ranks_ && is_part(x) != is_part(y) && rows(x) == rows(y)) return "";
    const std::int64_t own = program_.tensor(x).bytes();
    const auto parts = static_cast<int>(own > 0 ? program_.tensor(program_.storage(x)).bytes() / own : 0);
    if (parts > 0 && part_of(x, parts) >= 0 && part_of(x, parts) == part_of(y, parts)) return "";
    return fmt::format("'{}' and '{}' are not the same of {} parts", program_.tensor(x).name,
                       program_.tensor(y).name, parts);
  }

 private:
  bool is_part(TensorId t) const { return program_.storage(t) != t; }
  /// Which of the parts of what it is cut from; -1: of other parts than one for each rank.
  int part_of(TensorId t, int parts) const {
    const Tensor &part = program_.tensor(t), &whole = program_.tensor(program_.storage(t));
    const std::int64_t bytes = part.bytes();
    return bytes > 0 && bytes * parts == whole.bytes() && part.offset % bytes == 0
               ? static_cast<int>(part.offset / bytes)
               : -1;
  }
  /// That all parts are there when the whole is read, others prove: what nobody wrote is not read.
  Told put(TensorId to, Axis axis, Spread from, int owner) const {
    const std::string& name = program_.tensor(to).name;
    if (from != Spread::rows)
      return {from, fmt::format("'{}' is put together from what is {}", name, words_for(from))};
    const int part = part_of(to, program_.mesh[axis]);
    if (part == owner) return {Spread::equal};
    return {from, fmt::format("the rows of rank {} are put in place {} as '{}'", owner, part, name)};
  }
  Told sum(const Op& op, Axis axis, Spread from) const {
    const int ranks = program_.mesh[axis], own = rank_before(axis, 0);
    const TensorId mine = op.inputs[SumOfRanks::own], others = op.inputs[SumOfRanks::others];
    const Tensor &part = program_.tensor(mine), &rest = program_.tensor(others);
    if (from != Spread::sum || part_of(mine, ranks) != own)
      return {from, fmt::format("'{}' is {}, and not this rank's part of a sum", part.name, words_for(from))};
    if (rest.bytes() != (ranks - 1) * part.bytes() || is_part(others))
      return {from, fmt::format("'{}' does not hold a part for each other rank", rest.name)};
    for (int slot = 0; slot + 1 < ranks; ++slot) {
      const auto it = givers_.find({others, slot * part.bytes()});
      const int wanted = slot < own ? slot : slot + 1;
      if (it == givers_.end() || it->second != wanted)
        return {from,
                fmt::format("slot {} of '{}' does not hold what rank {} gives", slot, rest.name, wanted)};
    }
    return {Spread::rows};
  }
  int rank_before(Axis axis, int by) const {
    const int ranks = program_.mesh[axis], own = Coordinate(program_.mesh, program_.rank)[axis];
    return ((own - by) % ranks + ranks) % ranks;
  }

  const Program& program_;
  bool cut_by_ranks_;  ///< some products stand beside communication that goes part by part
  /// Whose part of a sum lies at these bytes of a tensor.
  std::map<std::pair<TensorId, std::int64_t>, int> givers_;
};

}  // namespace ztrain::program
