#pragma once
// clang-format off
// Ops that exchange and step the state. Operands (the structs of base/ as uint8[bytes]):
//   all_gather     shard[S]            -> full[N S]          slot r is the shard of the group's r-th member
//   reduce_scatter full[N S]           -> shard[s] [accumulate] workspace    begin: elements [begin, begin + s) of each
//                                                            of the N slots are summed
//   all_reduce     x                   -> y workspace
//   all_to_all     x[N S]              -> y[N S]             slot s of y is slot r of member s, of which this is member r
//   shift          x                   -> y                  y is x of the member `peer` places before this one in the ring
//   broadcast      x                   -> (x elsewhere)      the root (peer) reads, the others write
//   send           x                                         to the member at index peer of the group
//   recv                               -> y                  from it
//   release        x                                         ends the life of x's bytes; runs nothing
//   zero_gaps                          -> gradient           pieces: {begin, count}... of the padding
//   cast           x                   -> y                  element by element, to y's dtype
//   sum_squares    gradient[S]         -> norm ExactSum workspace   pieces: {begin, count}... of what this rank owns
//   step_partials  losses fp64[n,2]... norms ExactSum...  -> partials StepPartial
//                                                            losses: how many inputs are losses; counts_loss 0|1
//   finish_step    partials StepPartial[ranks] scalars  -> scalars
//   optimizer_step gradient scalars param (master) states...  -> param (master) states...
//                                                            attributes as in engine/bind_optimizer.cpp
//   fp8_largest    param                -> slots[S] workspace  pieces: {begin, count, begin in its weight, row, slot}...
//   fp8_scales     slots                -> scales...        weights: {first slot of the unit, slots per shard, slot,
//                                                            begin of the weight, row, elements per shard}...
//   fp8_encode     param scales...      -> codes            pieces: {begin, count, begin in its weight, row, input}...
// clang-format on

#include <string>

#include "program/ir/program.hpp"

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

/// Messages among the members of a group, on the stream p2p. Programs of a group's members must match
/// (verify_joint), and so must sizes and dtypes.
void emit_all_to_all(Program& program, const std::string& name, TensorId x, TensorId y, AxisSet axes,
                     Action action);
/// by: how far in the ring, 1 .. members - 1.
void emit_shift(Program& program, const std::string& name, TensorId x, TensorId y, AxisSet axes, int by,
                Action action);
void emit_broadcast(Program& program, const std::string& name, TensorId x, AxisSet axes, int root,
                    Action action);
void emit_send(Program& program, const std::string& name, TensorId x, AxisSet axes, int to, Action action);
void emit_recv(Program& program, const std::string& name, TensorId y, AxisSet axes, int from, Action action);

void emit_release(Program& program, TensorId tensor, Action action);

void emit_cast(Program& program, const std::string& name, TensorId from, TensorId to, Action action);

}  // namespace ztrain::program
