#include "engine/dispatch.hpp"
#include "engine/groups.hpp"
#include "kernels/communication/record.hpp"
#include "kernels/elementwise/copies.hpp"
#include "runtime/comm/rank_sum.hpp"

namespace ztrain::engine {
namespace {

runtime::Communicator& group(const Binding& b) {
  return communicator_of(b.mesh, b.op);
}

Bound bind_all_gather(const Binding& b) {
  using Op = program::AllGather;
  return {nullptr, group(b).all_gather(b.input<std::byte>(Op::shard), b.output<std::byte>(Op::full),
                                       b.in(Op::shard).bytes())};
}

Bound bind_reduce_scatter(const Binding& b) {
  using Op = program::ReduceScatter;
  const program::Tensor &from = b.in(Op::full), &to = b.out(Op::shard);
  const std::byte* full = b.input<std::byte>(Op::full) + b.record<Op>().begin * size_of(from.dtype);
  const std::int64_t stride = elements(from.shape) / group(b).size();
  return {nullptr, group(b).reduce_scatter(full, from.dtype, b.output<std::byte>(Op::shard), to.dtype,
                                           elements(to.shape), accumulates(b),
                                           b.output<std::byte>(Op::workspace), stride)};
}

Bound bind_all_reduce(const Binding& b) {
  using Op = program::AllReduce;
  const program::Tensor& y = b.out(Op::y);
  return {nullptr, group(b).all_reduce(b.input<std::byte>(Op::x), b.output<std::byte>(Op::y), y.dtype,
                                       elements(y.shape), b.output<std::byte>(Op::workspace))};
}

Bound bind_all_to_all(const Binding& b) {
  using Op = program::AllToAll;
  runtime::Communicator& comm = group(b);
  return {nullptr, comm.all_to_all(b.input<std::byte>(Op::x), b.output<std::byte>(Op::y),
                                   b.in(Op::x).bytes() / comm.size())};
}

Bound bind_all_to_all_rows(const Binding& b) {
  using Op = program::AllToAllRows;
  runtime::Communicator& comm = group(b);
  const program::Tensor& x = b.in(Op::x);
  const std::int32_t* const sizes =
      b.input<std::int32_t>(Op::sizes) + (b.record<Op>().back ? comm.size() : 0);
  return {nullptr, comm.all_to_all_rows(b.input<std::byte>(Op::x), b.output<std::byte>(Op::y),
                                        x.shape[0] / comm.size(), x.bytes() / x.shape[0], sizes)};
}

Bound bind_shift(const Binding& b) {
  using Op = program::Shift;
  return {nullptr, group(b).shift(b.input<std::byte>(Op::x), b.output<std::byte>(Op::y), b.in(Op::x).bytes(),
                                  b.op.comm.peer)};
}

Bound bind_broadcast(const Binding& b) {
  using Op = program::Broadcast;
  const bool root = b.op.outputs.empty();
  return {nullptr, group(b).broadcast(root ? b.input<std::byte>(Op::x) : b.output<std::byte>(Op::y),
                                      root ? b.in(Op::x).bytes() : b.out(Op::y).bytes(), b.op.comm.peer)};
}

/// The pair's first member sends to its second.
Bound bind_send(const Binding& b) {
  return {nullptr, group(b).send(b.input<std::byte>(program::Send::x), b.in(program::Send::x).bytes(), 1)};
}
Bound bind_recv(const Binding& b) {
  return {nullptr, group(b).recv(b.output<std::byte>(program::Recv::y), b.out(program::Recv::y).bytes(), 0)};
}

/// What a reduce-scatter does behind its messages.
Bound bind_sum_of_ranks(const Binding& b) {
  using Op = program::SumOfRanks;
  const program::Tensor &own = b.in(Op::own), &sum = b.out(Op::sum);
  const auto axes = AxisSet::from_bits(static_cast<std::uint32_t>(b.record<Op>().axes));
  const Coordinate at(b.program.mesh, b.program.rank);
  const runtime::RankSources sources{b.input<std::byte>(Op::own), b.input<std::byte>(Op::others), own.bytes(),
                                     at.index_in(axes), b.program.mesh.size(axes)};
  return {[work = runtime::rank_sum_work(own.dtype, sum.dtype, false, sources, b.output<std::byte>(Op::sum),
                                         elements(sum.shape)),
           stream = kernels::native_stream(b.exec)] { work(stream); }};
}

Bound bind_swap_blocks(const Binding& b) {
  using Op = program::SwapBlocks;
  const auto blocks = b.record<Op>();
  return with_type(b.out(0).dtype, [&]<class T>() {
    return launch(b, kernels::swap_blocks<T>, in_vector<T>(b, Op::x), blocks.outer, blocks.inner,
                  out_vector<T>(b, Op::y));
  });
}

}  // namespace

std::span<const KernelRow> communication_kernels() {
  static constexpr KernelRow rows[] = {
      {program::AllGather::op, bind_all_gather},
      {program::ReduceScatter::op, bind_reduce_scatter},
      {program::AllReduce::op, bind_all_reduce},
      {program::AllToAll::op, bind_all_to_all},
      {program::AllToAllRows::op, bind_all_to_all_rows},
      {program::Shift::op, bind_shift},
      {program::Broadcast::op, bind_broadcast},
      {program::Send::op, bind_send},
      {program::Recv::op, bind_recv},
      {program::SumOfRanks::op, bind_sum_of_ranks},
      {program::SwapBlocks::op, bind_swap_blocks},
  };
  return rows;
}

}  // namespace ztrain::engine
