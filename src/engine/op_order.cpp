#include "engine/op_order.hpp"

#include "base/shape.hpp"
#include "program/ir/order.hpp"

namespace ztrain::engine {

using program::OpId;
using program::PerStream;

OpOrder order_ops(const program::Program& program, const std::vector<bool>& host_driven) {
  const std::size_t count = program.ops.size();
  OpOrder result{std::vector<std::vector<OpId>>(count), std::vector<std::vector<OpId>>(count),
                 std::vector<bool>(count, false)};
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
  return result;
}

}  // namespace ztrain::engine
