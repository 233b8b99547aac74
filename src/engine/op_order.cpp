#include "engine/op_order.hpp"

#include "base/shape.hpp"
#include "program/ir/order.hpp"

namespace ztrain::engine {

using program::OpId;
using program::PerStream;

namespace {

void give_events(OpOrder& order) {
  const std::size_t count = order.signals.size();
  std::vector<std::size_t> last_wait(count, 0);
  const auto each_wait = [&](std::size_t i, auto visit) {
    for (const auto* earlier : {&order.waits[i], &order.settles[i]})
      for (const OpId id : *earlier) visit(static_cast<std::size_t>(id));
  };
  for (std::size_t i = 0; i < count; ++i) each_wait(i, [&](std::size_t earlier) { last_wait[earlier] = i; });
  order.event.assign(count, -1);
  std::vector<int> free;
  for (std::size_t i = 0; i < count; ++i) {
    each_wait(i, [&](std::size_t earlier) {
      if (last_wait[earlier] == i) free.push_back(order.event[earlier]);
    });
    if (!order.signals[i]) continue;
    if (free.empty()) free.push_back(order.event_count++);
    order.event[i] = free.back();
    free.pop_back();
  }
}

}  // namespace

OpOrder order_ops(const program::Program& program, const std::vector<bool>& host_driven) {
  const std::size_t count = program.ops.size();
  OpOrder result{std::vector<std::vector<OpId>>(count),
                 std::vector<std::vector<OpId>>(count),
                 std::vector<bool>(count, false),
                 {}};
  program::Order order(program);
  PerStream last = program::no_ops;  // of each stream, run by the device
  for (std::size_t i = 0; i < count; ++i) {
    const program::Op& op = program.ops[i];
    PerStream wanted = program::no_ops;
    for (const OpId earlier : op.after) program::merge(wanted, earlier, program);
    std::vector<OpId> after = order.append_after(static_cast<OpId>(i), wanted);
    std::erase_if(after, [&](OpId earlier) { return host_driven[static_cast<std::size_t>(earlier)]; });
    OpId& own = last[at(op.stream)];
    if (host_driven[i] && own != program::no_op) after.push_back(own);
    for (const OpId earlier : after) result.signals[static_cast<std::size_t>(earlier)] = true;
    (host_driven[i] ? result.settles : result.waits)[i] = std::move(after);
    own = host_driven[i] ? program::no_op : static_cast<OpId>(i);
  }
  give_events(result);
  return result;
}

}  // namespace ztrain::engine
