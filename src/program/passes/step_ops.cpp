#include "program/passes/step_ops.hpp"

#include "layout/comm_cost.hpp"

namespace ztrain::program {

void emit_all_gather(Program& program, const std::string& name, TensorId shard, TensorId full, AxisSet axes,
                     Action action) {
  const int ranks = program.mesh.size(axes);
  if (ranks == 1) return;
  Op op;
  op.type = "all_gather";
  op.name = name;
  op.inputs = {shard};
  op.outputs = {full};
  op.stream = Stream::gather;
  op.action = action;
  op.comm.kind = CommKind::all_gather;
  op.comm.axes = axes;
  op.comm.sent_bytes = all_gather_sent(ranks, program.tensor(shard).bytes());
  program.ops.push_back(std::move(op));
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
  Op op;
  op.type = "reduce_scatter";
  op.name = name;
  op.inputs = {from.full};
  if (accumulate) op.inputs.push_back(shard);
  op.outputs = {shard, workspace};
  op.attributes = {{"accumulate", std::int64_t{accumulate}}, {"begin", from.begin}};
  op.stream = Stream::reduce;
  op.action = action;
  op.comm.kind = CommKind::reduce_scatter;
  op.comm.axes = axes;
  op.comm.sent_bytes = reduce_scatter_sent(ranks, wire, count);
  program.ops.push_back(std::move(op));
}

void emit_all_reduce(Program& program, const std::string& name, TensorId x, TensorId y, AxisSet axes,
                     Action action) {
  Op op;
  op.name = name;
  op.action = action;
  op.inputs = {x};
  op.outputs = {y};
  const int ranks = program.mesh.size(axes);
  if (ranks == 1) {
    op.type = "copy";
    program.ops.push_back(std::move(op));
    return;
  }
  const Tensor& info = program.tensor(x);
  const std::int64_t count = elements(info.shape);
  Tensor ws;
  ws.name = "workspace." + name;
  ws.dtype = DType::u8;
  ws.shape = {all_reduce_workspace(ranks, info.dtype, count)};
  ws.category = Category::workspace;
  op.type = "all_reduce";
  op.stream = Stream::reduce;
  op.comm.kind = CommKind::all_reduce;
  op.comm.axes = axes;
  op.comm.sent_bytes =
      all_reduce_sent(ranks, Coordinate(program.mesh, program.rank).index_in(axes), info.dtype, count);
  op.outputs.push_back(program.add(std::move(ws)));
  program.ops.push_back(std::move(op));
}

namespace {

Op& emit_message(Program& program, CommKind kind, const std::string& name, AxisSet axes, int peer,
                 Action action) {
  Op op;
  op.type = name_of(kind);
  op.name = name;
  op.stream = Stream::p2p;
  op.action = action;
  op.comm.kind = kind;
  op.comm.axes = axes;
  op.comm.peer = peer;
  program.ops.push_back(std::move(op));
  return program.ops.back();
}

}  // namespace

void emit_all_to_all(Program& program, const std::string& name, TensorId x, TensorId y, AxisSet axes,
                     Action action) {
  const int ranks = program.mesh.size(axes);
  Op& op = emit_message(program, CommKind::all_to_all, name, axes, -1, action);
  op.inputs = {x};
  op.outputs = {y};
  op.comm.sent_bytes = all_to_all_sent(ranks, program.tensor(x).bytes() / ranks);
}

void emit_shift(Program& program, const std::string& name, TensorId x, TensorId y, AxisSet axes, int by,
                Action action) {
  Op& op = emit_message(program, CommKind::shift, name, axes, by, action);
  op.inputs = {x};
  op.outputs = {y};
  op.comm.sent_bytes = shift_sent(program.mesh.size(axes), program.tensor(x).bytes());
}

void emit_broadcast(Program& program, const std::string& name, TensorId x, AxisSet axes, int root,
                    Action action) {
  const int own = Coordinate(program.mesh, program.rank).index_in(axes);
  Op& op = emit_message(program, CommKind::broadcast, name, axes, root, action);
  (own == root ? op.inputs : op.outputs) = {x};
  op.comm.sent_bytes = broadcast_sent(program.mesh.size(axes), own, root, program.tensor(x).bytes());
}

void emit_send(Program& program, const std::string& name, TensorId x, AxisSet axes, int to, Action action) {
  Op& op = emit_message(program, CommKind::send, name, axes, to, action);
  op.inputs = {x};
  op.comm.sent_bytes = program.tensor(x).bytes();
}

void emit_recv(Program& program, const std::string& name, TensorId y, AxisSet axes, int from, Action action) {
  emit_message(program, CommKind::recv, name, axes, from, action).outputs = {y};
}

void emit_release(Program& program, TensorId tensor, Action action) {
  Op op;
  op.type = "release";
  op.name = program.tensor(tensor).name;
  op.inputs = {tensor};
  op.action = action;
  program.ops.push_back(std::move(op));
}

void emit_cast(Program& program, const std::string& name, TensorId from, TensorId to, Action action) {
  Op op;
  op.type = "cast";
  op.name = name;
  op.inputs = {from};
  op.outputs = {to};
  op.action = action;
  program.ops.push_back(std::move(op));
}

}  // namespace ztrain::program
