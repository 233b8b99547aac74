#include "program/verify/ring_check.hpp"

#include <fmt/format.h>

#include "program/ops/step_records.hpp"

namespace ztrain::program {

RingCheck::Journey RingCheck::journey(TensorId t, Axis axis) const {
  const auto it = journeys_.find({program_.storage(t), axis});
  return it == journeys_.end() ? Journey{} : it->second;
}

Spread RingCheck::letter_of(TensorId t, Axis axis) const {
  const Journey j = journey(t, axis);
  const auto ranks = static_cast<std::size_t>(program_.mesh[axis]);
  return j.by == 0 && (j.of.empty() || j.of.size() == ranks) ? '0' : 'K';
}

Spread RingCheck::shifted(const Op& op, Axis axis, Spread from) {
  const int ranks = program_.mesh[axis];
  Journey next = from == 'K' ? journey(op.inputs[0], axis) : Journey{};
  next.by = (next.by + op.comm.peer % ranks + ranks) % ranks;
  note(op.outputs[0], axis) = std::move(next);
  return letter_of(op.outputs[0], axis);
}

std::string RingCheck::follow(const Op& op, Axis axis) {
  if (op.type == AttentionPart::op || op.type == AttentionPartGrad::op) return follow_part(op, axis);
  if (op.type == Add::op) return follow_sum(op, axis);
  note(op.outputs[0], axis) = journey(op.inputs[0], axis);
  return "";
}

/// Of what has the tokens of one rank: which they are.
std::vector<TokenRun> RingCheck::tokens_of(TensorId t, Axis axis) const {
  const int ranks = program_.mesh[axis], own = Coordinate(program_.mesh, program_.rank)[axis];
  return program_.token_order.part(program_.tensor(t).shape[0] * ranks, ranks,
                                   (own + ranks - journey(t, axis).by) % ranks);
}

/// Keys that are not on their way have no journey, or one that is over.
std::string RingCheck::follow_part(const Op& op, Axis axis) {
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

std::string RingCheck::follow_sum(const Op& op, Axis axis) {
  const Journey x = journey(op.inputs[Add::x], axis), y = journey(op.inputs[Add::addend], axis);
  Journey sum = x;
  sum.of.insert(y.of.begin(), y.of.end());
  if (x.by != y.by || sum.of.size() != x.of.size() + y.of.size())
    return fmt::format("'{}' and '{}' are not sums of different ranks for the same one",
                       program_.tensor(op.inputs[Add::x]).name, program_.tensor(op.inputs[Add::addend]).name);
  note(op.outputs[Add::sum], axis) = std::move(sum);
  return "";
}

}  // namespace ztrain::program
