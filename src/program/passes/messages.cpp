#include "program/passes/messages.hpp"

#include <algorithm>
#include <iterator>

#include "base/index.hpp"
#include "program/ops/op_type.hpp"
#include "program/ops/step_records.hpp"

namespace ztrain::program {
namespace {

/// gradient: whether it is one.
MessageId id_of(const Op& op, std::int64_t boundary, bool gradient) {
  return {static_cast<int>(boundary), gradient, op.action.micro};
}

Op release_of(const Op& send) {
  Op release;
  release.type = Release::op;
  release.name = send.name;
  release.inputs = send.inputs;
  release.action = {ActionKind::release, send.action.part, send.action.micro};
  return release;
}

}  // namespace

std::vector<std::size_t> place_messages(Program& program, const std::vector<std::size_t>& turn_begins,
                                        const StageMap& map, int rank, const MessagePlan& plan) {
  // By turn: receives that begin before it, its other ops, and what ends behind it.
  std::vector<std::vector<Op>> own(turn_begins.size()), ended(turn_begins.size());
  std::vector<std::vector<std::pair<int, Op>>> begun(turn_begins.size());  // with their numbers
  std::size_t turn = 0;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    while (turn + 1 < turn_begins.size() && turn_begins[turn + 1] <= i) ++turn;
    Op& op = program.ops[i];
    if (op.comm.kind == CommKind::recv) {
      const std::int64_t boundary = record_of<Recv>(op.attributes).boundary;
      const bool gradient = map.rank_of(static_cast<int>(boundary)) != rank;
      const MessageId id = id_of(op, boundary, gradient);
      begun[at(plan.begins.at(id))].emplace_back(plan.number.at(id), std::move(op));
      continue;
    }
    if (op.comm.kind == CommKind::send) {
      const std::int64_t boundary = record_of<Send>(op.attributes).boundary;
      const bool gradient = map.rank_of(static_cast<int>(boundary)) == rank;
      ended[at(plan.received.at(id_of(op, boundary, gradient)))].push_back(release_of(op));
    }
    own[turn].push_back(std::move(op));
  }
  program.ops.clear();
  std::vector<std::size_t> begins;
  for (std::size_t t = 0; t < turn_begins.size(); ++t) {
    begins.push_back(program.ops.size());
    std::ranges::stable_sort(begun[t], {}, [](const auto& receive) { return receive.first; });
    for (auto& [number, receive] : begun[t]) program.ops.push_back(std::move(receive));
    for (auto* list : {&own[t], &ended[t]}) std::ranges::move(*list, std::back_inserter(program.ops));
  }
  return begins;
}

}  // namespace ztrain::program
