#pragma once
// What the check of placements knows of values that go round the ranks of an axis, and of sums over them:
// whose part of a split dim a rank holds, and of which ranks it has what it needs. It
// shares nothing with those who emit the ops (kernels/attention/rules_ring.cpp).

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/shape.hpp"
#include "kernels/attention/record_ring.hpp"
#include "kernels/elementwise/record.hpp"
#include "program/verify/spread.hpp"

namespace ztrain::program {

/// Its values are `around` until each rank has its own part, and, of a sum, what all ranks give to it.
class RingCheck {
 public:
  explicit RingCheck(const Program& program) : program_(program) {}

  /// Whether an op takes what is on its way round, or sends it: parts of the queries and of the keys, where
  /// they are not those of whole sequences, and sums and copies of what comes of them.
  bool concerns(const Op& op, const std::vector<Spread>& given, Axis axis) const {
    const auto all = [&](std::size_t begin, std::size_t end, Spread spread) {
      return std::all_of(given.begin() + begin, given.begin() + end, [&](Spread s) { return s == spread; });
    };
    if (op.type == Add::op || op.type == Copy::op) return all(0, given.size(), Spread::around);
    if (op.type != AttentionPart::op && op.type != AttentionPartGrad::op) return false;
    const std::size_t k = AttentionPart::k, behind = AttentionPart::v + 1;
    return !sequence_axes.contains(axis) && all(0, k, Spread::rows) &&
           all(behind, given.size(), Spread::rows) &&
           (all(k, behind, Spread::rows) || all(k, behind, Spread::around));
  }

  /// Returns the spread of what a shift gives. Its input is split along dim 0, or on its way already.
  Spread shifted(const Op& op, Axis axis, Spread from) {
    const int ranks = program_.mesh[axis];
    Journey next = from == Spread::around ? journey(op.inputs[0], axis) : Journey{};
    next.by = (next.by + op.comm.peer % ranks + ranks) % ranks;
    note(op.outputs[0], axis) = std::move(next);
    return spread_of(op.outputs[0], axis);
  }

  /// Of an op with such outputs: what is wrong with it, or "". Notes what comes out.
  std::string follow(const Op& op, Axis axis) {
    if (op.type == AttentionPart::op || op.type == AttentionPartGrad::op) return follow_part(op, axis);
    if (op.type == Add::op) return follow_sum(op, axis);
    note(op.outputs[0], axis) = journey(op.inputs[0], axis);
    return "";
  }

  /// An output of such an op.
  Spread spread_of(TensorId t, Axis axis) const {
    const Journey j = journey(t, axis);
    const auto ranks = at(program_.mesh[axis]);
    return j.by == 0 && (j.of.empty() || j.of.size() == ranks) ? Spread::rows : Spread::around;
  }

 private:
  /// Every rank has the part of the rank `by` places before it; of a sum, what the ranks so many places
  /// behind that one give to it, or what came of the keys so many places before.
  struct Journey {
    int by = 0;
    std::set<int> of{};
  };
  Journey journey(TensorId t, Axis axis) const {
    const auto it = journeys_.find({program_.storage(t), axis});
    return it == journeys_.end() ? Journey{} : it->second;
  }
  Journey& note(TensorId t, Axis axis) { return journeys_[{program_.storage(t), axis}]; }

  /// Of what has the tokens of one rank: which they are.
  std::vector<TokenRun> tokens_of(TensorId t, Axis axis) const {
    const int ranks = program_.mesh[axis], own = Coordinate(program_.mesh, program_.rank)[axis];
    return program_.token_order.part(program_.tensor(t).shape[0] * ranks, ranks,
                                     (own + ranks - journey(t, axis).by) % ranks);
  }
  /// Keys that are not on their way have no journey, or one that is over.
  std::string follow_part(const Op& op, Axis axis) {
    const auto part = record_of<RingPart>(op.attributes);
    const int by = journey(op.inputs[AttentionPart::k], axis).by;
    for (const std::size_t i : {AttentionPart::q, AttentionPart::k, AttentionPart::v}) {
      const TensorId t = op.inputs[i];
      const std::vector<TokenRun> held = tokens_of(t, axis);
      const std::vector<TokenRun>& taken = i == AttentionPart::q ? part.queries_at : part.keys_at;
      if (taken == held) continue;
      return fmt::format("'{}' is tokens {}, and taken for {}", program_.tensor(t).name,
                         ztrain::to_string(held), ztrain::to_string(taken));
    }
    const bool grad = op.type == AttentionPartGrad::op;
    for (std::size_t i = 0; i < (grad ? 1 : op.outputs.size()); ++i) {
      Journey& sum = note(op.outputs[i], axis);
      if (!part.accumulate) sum = {};
      if (!sum.of.insert(by).second)
        return fmt::format("'{}' has the keys of tokens {} twice", program_.tensor(op.outputs[i]).name,
                           ztrain::to_string(part.keys_at));
    }
    if (grad)
      for (const std::size_t i : {AttentionPartGrad::dk, AttentionPartGrad::dv})
        note(op.outputs[i], axis) = {by, {by}};
    return "";
  }
  std::string follow_sum(const Op& op, Axis axis) {
    const Journey x = journey(op.inputs[Add::x], axis), y = journey(op.inputs[Add::addend], axis);
    Journey sum = x;
    sum.of.insert(y.of.begin(), y.of.end());
    if (x.by != y.by || sum.of.size() != x.of.size() + y.of.size())
      return fmt::format("'{}' and '{}' are not sums of different ranks for the same one",
                         program_.tensor(op.inputs[Add::x]).name,
                         program_.tensor(op.inputs[Add::addend]).name);
    note(op.outputs[Add::sum], axis) = std::move(sum);
    return "";
  }

  const Program& program_;
  std::map<std::pair<TensorId, Axis>, Journey> journeys_;
};

}  // namespace ztrain::program
