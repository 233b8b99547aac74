#include "program/ops/step_ops.hpp"

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "layout/comm_cost.hpp"
#include "program/ops/op_type.hpp"
#include "program/ops/step_records.hpp"

namespace ztrain::program {

void emit_all_gather(Program& program, const std::string& name, TensorId shard, TensorId full, AxisSet axes,
                     Action action) {
  const int ranks = program.mesh.size(axes);
  if (ranks == 1) return;
  Op& op = add_op(program, AllGather{}, name);
  op.inputs = {shard};
  op.outputs = {full};
  op.stream = Stream::gather;
  op.action = action;
  op.comm.kind = CommKind::all_gather;
  op.comm.axes = axes;
  op.comm.sent_bytes = all_gather_sent(ranks, program.tensor(shard).bytes());
}

void emit_reduce_scatter(Program& program, const std::string& name, const Slots& from, TensorId shard,
                         AxisSet axes, bool accumulate, Action action, TensorId workspace) {
  const int ranks = program.mesh.size(axes);
  const std::int64_t count = elements(program.tensor(shard).shape);
  const DType wire = program.tensor(from.full).dtype;
  if (workspace == no_tensor) {
    Tensor ws;
    ws.name = "workspace.reduce." + name;
    ws.dtype = DType::u8;
    ws.shape = {reduce_scatter_workspace(ranks, wire, count)};
    ws.category = Category::workspace;
    workspace = program.add(std::move(ws));
  }
  Op& op = add_op(program, ReduceScatter{accumulate, from.begin}, name);
  op.inputs = {from.full};
  if (accumulate) op.inputs.push_back(shard);
  op.outputs = {shard, workspace};
  op.stream = Stream::reduce;
  op.action = action;
  op.comm.kind = CommKind::reduce_scatter;
  op.comm.axes = axes;
  op.comm.sent_bytes = reduce_scatter_sent(ranks, wire, count);
}

void emit_all_reduce(Program& program, const std::string& name, TensorId x, TensorId y, AxisSet axes,
                     Action action) {
  const int ranks = program.mesh.size(axes);
  if (ranks == 1) return emit_copy(program, name, x, y, action);
  const DType type = program.tensor(x).dtype;
  const std::int64_t count = elements(program.tensor(x).shape);
  Tensor ws;
  ws.name = "workspace." + name;
  ws.dtype = DType::u8;
  ws.shape = {all_reduce_workspace(ranks, type, count)};
  ws.category = Category::workspace;
  const TensorId workspace = program.add(std::move(ws));
  Op& op = add_op(program, AllReduce{}, name);
  op.inputs = {x};
  op.outputs = {y, workspace};
  op.stream = Stream::reduce;
  op.action = action;
  op.comm.kind = CommKind::all_reduce;
  op.comm.axes = axes;
  op.comm.sent_bytes =
      all_reduce_sent(ranks, Coordinate(program.mesh, program.rank).index_in(axes), type, count);
}

void move_to_exchange(Program& program) {
  Op& op = program.ops.back();
  ASSERT(op.communicates(), "'{}' does not communicate", op.type);
  op.stream = Stream::exchange;
}

namespace {

template <class Record>
Op& emit_message(Program& program, const Record& record, CommKind kind, const std::string& name, AxisSet axes,
                 int peer, Action action) {
  Op& op = add_op(program, record, name);
  op.stream = Stream::p2p;
  op.action = action;
  op.comm.kind = kind;
  op.comm.axes = axes;
  op.comm.peer = peer;
  return op;
}

}  // namespace

void emit_all_to_all(Program& program, const std::string& name, TensorId x, TensorId y, AxisSet axes,
                     Action action) {
  const int ranks = program.mesh.size(axes);
  Op& op = emit_message(program, AllToAll{}, CommKind::all_to_all, name, axes, -1, action);
  op.inputs = {x};
  op.outputs = {y};
  op.comm.sent_bytes = all_to_all_sent(ranks, program.tensor(x).bytes() / ranks);
}

void emit_shift(Program& program, const std::string& name, TensorId x, TensorId y, AxisSet axes, int by,
                Action action) {
  Op& op = emit_message(program, Shift{}, CommKind::shift, name, axes, by, action);
  op.inputs = {x};
  op.outputs = {y};
  op.comm.sent_bytes = shift_sent(program.mesh.size(axes), program.tensor(x).bytes());
}

void emit_broadcast(Program& program, const std::string& name, TensorId x, AxisSet axes, int root,
                    Action action) {
  const int own = Coordinate(program.mesh, program.rank).index_in(axes);
  Op& op = emit_message(program, Broadcast{}, CommKind::broadcast, name, axes, root, action);
  (own == root ? op.inputs : op.outputs) = {x};
  op.comm.sent_bytes = broadcast_sent(program.mesh.size(axes), own, root, program.tensor(x).bytes());
}

void emit_send(Program& program, const std::string& name, TensorId x, AxisSet axes, int to, Action action,
               const Message& message) {
  Op& op = emit_message(program, Send{message}, CommKind::send, name, axes, to, action);
  op.inputs = {x};
  op.comm.sent_bytes = program.tensor(x).bytes();
}

void emit_recv(Program& program, const std::string& name, TensorId y, AxisSet axes, int from, Action action,
               const Message& message) {
  emit_message(program, Recv{message}, CommKind::recv, name, axes, from, action).outputs = {y};
}

void emit_release(Program& program, TensorId tensor, Action action) {
  Op& op = add_op(program, Release{}, program.tensor(tensor).name);
  op.inputs = {tensor};
  op.action = action;
}

namespace {

template <class Record>
void emit_unary(Program& program, const std::string& name, TensorId from, TensorId to, Action action) {
  Op& op = add_op(program, Record{}, name);
  op.inputs = {from};
  op.outputs = {to};
  op.action = action;
}

std::int64_t sum_workspace(const Program& p, const Op& op) {
  return sum_squares_workspace_bytes(elements(p.tensor(op.inputs[SumSquares::gradient]).shape));
}

}  // namespace

void emit_cast(Program& program, const std::string& name, TensorId from, TensorId to, Action action) {
  emit_unary<Cast>(program, name, from, to, action);
}

void emit_copy(Program& program, const std::string& name, TensorId from, TensorId to, Action action) {
  emit_unary<Copy>(program, name, from, to, action);
}

std::span<const OpType> step_ops() {
  static constexpr OpType rows[] = {
      {.record = record<AllGather>()},     {.record = record<ReduceScatter>()},
      {.record = record<AllReduce>()},     {.record = record<Broadcast>()},
      {.record = record<AllToAll>()},      {.record = record<Shift>()},
      {.record = record<Send>()},          {.record = record<Recv>()},
      {.record = record<Release>()},       {.record = record<ZeroGaps>()},
      {.record = record<Cast>()},          {.record = record<SumSquares>(), .workspace = sum_workspace},
      {.record = record<StepPartials>()},  {.record = record<FinishStep>()},
      {.record = record<OptimizerStep>()},
  };
  return rows;
}

}  // namespace ztrain::program
