#pragma once
// Emits ops that exchange the state, and move it.

#include <string>

#include "kernels/communication/record.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::program {

/// shard and full flat tensors of one dtype; a copy is not needed where the group has one member: returns
/// without an op.
void emit_all_gather(Program& program, const std::string& name, TensorId shard, TensorId full, AxisSet axes,
                     Action action);

/// What a reduce-scatter reads: of each member's slot of `full`, the elements from `begin` on, as many as the
/// shard has.
struct Slots {
  TensorId full = no_tensor;
  std::int64_t begin = 0;
};
/// workspace: of an earlier one that moved as much, or none for one of its own.
void emit_reduce_scatter(Program& program, const std::string& name, const Slots& from, TensorId shard,
                         AxisSet axes, bool accumulate, Action action, TensorId workspace = no_tensor);

/// Appends a summing all-reduce of x over axes into y, with its workspace; a plain copy where the group has
/// one member.
void emit_all_reduce(Program& program, const std::string& name, TensorId x, TensorId y, AxisSet axes,
                     Action action);

/// Lets the last op, which communicates, wait for no gather or reduction but those that it needs.
void move_to_exchange(Program& program);

/// Messages among the members of a group, on the stream p2p (until move_to_exchange). Programs of a group's
/// members must match (verify_no_deadlock), and so must sizes and dtypes.
void emit_all_to_all(Program& program, const std::string& name, TensorId x, TensorId y, AxisSet axes,
                     Action action);
/// sizes: the routes of a group (kernels/dispatch/record.hpp).
struct RowsToMove {
  TensorId slots = no_tensor, sizes = no_tensor;
};
void emit_all_to_all_rows(Program& program, const std::string& name, const RowsToMove& x, TensorId y,
                          AxisSet axes, bool back, Action action);
/// by: how far in the ring, 1 .. members - 1.
void emit_shift(Program& program, const std::string& name, TensorId x, TensorId y, AxisSet axes, int by,
                Action action);
void emit_broadcast(Program& program, const std::string& name, TensorId x, AxisSet axes, int root,
                    Action action);
void emit_send(Program& program, const std::string& name, TensorId x, AxisSet axes, int to, Action action,
               const Message& message = {});
void emit_recv(Program& program, const std::string& name, TensorId y, AxisSet axes, int from, Action action,
               const Message& message = {});

void emit_release(Program& program, TensorId tensor, Action action);

void emit_cast(Program& program, const std::string& name, TensorId from, TensorId to, Action action);
void emit_copy(Program& program, const std::string& name, TensorId from, TensorId to, Action action);

/// Appends a quantisation, Fp8Quantize or Fp8QuantizeBoth, whose scales go over the parts of all ranks of its
/// axes, which tell each other their largest magnitudes: one for each scale. Workspaces are to be added
/// (complete).
template <class Record>
void emit_quantize(Program& program, const std::string& name, Record record, Operands operands);

}  // namespace ztrain::program
