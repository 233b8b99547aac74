#include "program/ops/emit.hpp"

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/communication/record.hpp"
#include "kernels/elementwise/record.hpp"
#include "layout/comm_cost.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::program {
namespace {

/// x or y: none of this rank's.
template <class Record>
void emit_message(Program& program, const Record& record, const std::string& name, TensorId x, TensorId y,
                  const Communication& comm, Action action) {
  Op& op = add_op(program, record, name, action, {}, {});
  if (x != no_tensor) op.inputs = {x};
  if (y != no_tensor) op.outputs = {y};
  op.stream = Stream::p2p;
  op.comm = comm;
}

}  // namespace

void emit_all_gather(Program& program, const std::string& name, TensorId shard, TensorId full, AxisSet axes,
                     Action action) {
  const int ranks = program.mesh.size(axes);
  if (ranks == 1) return;
  Op& op = add_op(program, AllGather{}, name, action, {shard}, {full});
  op.stream = Stream::gather;
  op.comm = {CommKind::all_gather, axes, -1, all_gather_sent(ranks, program.tensor(shard).bytes())};
}

void emit_reduce_scatter(Program& program, const std::string& name, const Slots& from, TensorId shard,
                         AxisSet axes, bool accumulate, Action action, TensorId workspace) {
  const SumGroup group = sum_group(program.mesh, axes);
  const std::int64_t count = elements(program.tensor(shard).shape);
  const DType wire = program.tensor(from.full).dtype;
  if (workspace == no_tensor)
    workspace =
        program.add_workspace("workspace.reduce." + name, reduce_scatter_workspace(group, wire, count));
  Op& op =
      add_op(program, ReduceScatter{accumulate, from.begin}, name, action, {from.full}, {shard, workspace});
  if (accumulate) op.inputs.push_back(shard);
  op.stream = Stream::reduce;
  op.comm = {CommKind::reduce_scatter, axes, -1, reduce_scatter_sent(group, wire, count)};
}

void emit_all_reduce(Program& program, const std::string& name, TensorId x, TensorId y, AxisSet axes,
                     Action action) {
  const Coordinate at(program.mesh, program.rank);
  const SumGroup group = sum_group(program.mesh, axes);
  if (group.ranks == 1) return emit_copy(program, name, x, y, action);
  const DType type = program.tensor(x).dtype;
  const std::int64_t count = elements(program.tensor(x).shape);
  const TensorId workspace =
      program.add_workspace("workspace." + name, all_reduce_workspace(group, type, count));
  Op& op = add_op(program, AllReduce{}, name, action, {x}, {y, workspace});
  op.stream = Stream::reduce;
  op.comm = {CommKind::all_reduce, axes, -1, all_reduce_sent(group, at.index_in(axes), type, count)};
}

void move_to_exchange(Program& program) {
  Op& op = program.ops.back();
  ASSERT(op.communicates(), "'{}' does not communicate", op.type);
  op.stream = Stream::exchange;
}

void emit_all_to_all(Program& program, const std::string& name, TensorId x, TensorId y, AxisSet axes,
                     Action action) {
  const int ranks = program.mesh.size(axes);
  const std::int64_t sent = all_to_all_sent(ranks, program.tensor(x).bytes() / ranks);
  emit_message(program, AllToAll{}, name, x, y, {CommKind::all_to_all, axes, -1, sent}, action);
}

void emit_all_to_all_rows(Program& program, const std::string& name, const RowsToMove& x, TensorId y,
                          AxisSet axes, bool back, Action action) {
  const int ranks = program.mesh.size(axes);
  const std::int64_t most = all_to_all_sent(ranks, program.tensor(x.slots).bytes() / ranks);
  Op& op = add_op(program, AllToAllRows{back}, name, action, {x.slots, x.sizes}, {y});
  op.comm = {CommKind::all_to_all_rows, axes, -1, most};
  move_to_exchange(program);
}

void emit_shift(Program& program, const std::string& name, TensorId x, TensorId y, AxisSet axes, int by,
                Action action) {
  const std::int64_t sent = shift_sent(program.mesh.size(axes), program.tensor(x).bytes());
  emit_message(program, Shift{}, name, x, y, {CommKind::shift, axes, by, sent}, action);
}

void emit_broadcast(Program& program, const std::string& name, TensorId x, AxisSet axes, int root,
                    Action action) {
  const int own = Coordinate(program.mesh, program.rank).index_in(axes);
  const std::int64_t sent = broadcast_sent(program.mesh.size(axes), own, root, program.tensor(x).bytes());
  emit_message(program, Broadcast{}, name, own == root ? x : no_tensor, own == root ? no_tensor : x,
               {CommKind::broadcast, axes, root, sent}, action);
}

void emit_send(Program& program, const std::string& name, TensorId x, AxisSet axes, int to, Action action,
               const Message& message) {
  emit_message(program, Send{message}, name, x, no_tensor,
               {CommKind::send, axes, to, program.tensor(x).bytes()}, action);
}

void emit_recv(Program& program, const std::string& name, TensorId y, AxisSet axes, int from, Action action,
               const Message& message) {
  emit_message(program, Recv{message}, name, no_tensor, y, {CommKind::recv, axes, from}, action);
}

void emit_release(Program& program, TensorId tensor, Action action) {
  add_op(program, Release{}, program.tensor(tensor).name, action, {tensor}, {});
}

void emit_cast(Program& program, const std::string& name, TensorId from, TensorId to, Action action) {
  add_op(program, Cast{}, name, action, {from}, {to});
}

void emit_copy(Program& program, const std::string& name, TensorId from, TensorId to, Action action) {
  add_op(program, Copy{}, name, action, {from}, {to});
}

}  // namespace ztrain::program
