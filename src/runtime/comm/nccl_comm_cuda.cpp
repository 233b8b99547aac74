#include <cuda_runtime.h>
#include <nccl.h>

#include "base/error.hpp"
#include "layout/comm_cost.hpp"
#include "runtime/comm/nccl_comm.hpp"
#include "runtime/comm/peers.hpp"

namespace ztrain::runtime {
namespace {

const std::byte* moved(const void* base, std::int64_t bytes) {
  return static_cast<const std::byte*>(base) + bytes;
}
std::byte* moved(void* base, std::int64_t bytes) {
  return static_cast<std::byte*>(base) + bytes;
}

/// Of sums; what is only moved travels as bytes.
ncclDataType_t type_of(DType type) {
  switch (type) {
    case DType::f64:
      return ncclFloat64;
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    default:
      fail("NCCL is not asked to sum {}", name_of(type));
  }
}

/// NCCL's calls on one communicator and stream.
struct Calls {
  const NcclHandle& handle;
  cudaStream_t stream;
  ncclResult_t failure = ncclSuccess;  ///< the first within a group

  Calls(const NcclHandle& h, void* s) : handle(h), stream(static_cast<cudaStream_t>(s)) {}

  /// Within a group the others of its calls must still be made, and the group ended, after a failure.
  void add(ncclResult_t result) {
    if (failure == ncclSuccess && result != ncclInProgress) failure = result;
  }
  void send(const void* data, std::int64_t bytes, int to) {
    if (bytes > 0) add(ncclSend(data, static_cast<std::size_t>(bytes), ncclUint8, to, handle.get(), stream));
  }
  void receive(void* data, std::int64_t bytes, int from) {
    if (bytes > 0)
      add(ncclRecv(data, static_cast<std::size_t>(bytes), ncclUint8, from, handle.get(), stream));
  }
  void broadcast(void* data, std::int64_t bytes, int root) {
    if (bytes > 0)
      add(ncclBroadcast(data, data, static_cast<std::size_t>(bytes), ncclUint8, root, handle.get(), stream));
  }
  /// to: used by root alone.
  void reduce(const void* from, void* to, std::int64_t count, DType type, int root) {
    if (count > 0)
      add(ncclReduce(from, to, static_cast<std::size_t>(count), type_of(type), ncclSum, root, handle.get(),
                     stream));
  }
};

/// f(Calls&), as one piece of work.
template <class F>
void grouped(const NcclHandle& handle, void* stream, const char* what, const F& f) {
  if (const ncclResult_t begin = ncclGroupStart(); begin != ncclSuccess)
    handle.settle(begin, "ncclGroupStart");
  Calls calls(handle, stream);
  f(calls);
  const ncclResult_t end = ncclGroupEnd();
  handle.settle(calls.failure != ncclSuccess ? calls.failure : end, what);
}

}  // namespace

NcclCommunicator::NcclCommunicator(std::shared_ptr<NcclHandle> handle, Device& device, Queue queue,
                                   bool nccl_sums)
    : handle_(std::move(handle)),
      channel_(std::make_shared<QueueChannel>(device, queue)),
      stream_(device.native_stream(queue)),
      nccl_sums_(nccl_sums) {}

std::unique_ptr<Collective> NcclCommunicator::queued(Step work, std::int64_t sent) const {
  return std::make_unique<QueuedCollective>(channel_, std::move(work), sent);
}

NcclCommunicator::Step NcclCommunicator::on_stream(StreamWork work) const {
  return [work = std::move(work), stream = stream_] { work(stream); };
}

NcclCommunicator::Step NcclCommunicator::reduce_slices(const void* from, void* to, DType type,
                                                       const Slices& slices) const {
  if (slices.equal) {
    return [=, &handle = *handle_, stream = stream_, count = static_cast<std::size_t>(slices.step)] {
      if (count > 0)
        handle.settle(ncclReduceScatter(from, to, count, type_of(type), ncclSum, handle.get(),
                                        static_cast<cudaStream_t>(stream)),
                      "ncclReduceScatter");
    };
  }
  return [=, &handle = *handle_, stream = stream_] {
    grouped(handle, stream, "a group of ncclReduce", [&](Calls& calls) {
      for (int r = 0; r < handle.size(); ++r)
        calls.reduce(moved(from, r * slices.step * size_of(type)), r == handle.rank() ? to : nullptr,
                     slices.lengths(r), type, r);
    });
  };
}

NcclCommunicator::Step NcclCommunicator::exchange_slices(const void* from, void* workspace, DType type,
                                                         const Slices& slices) const {
  return [=, &handle = *handle_, stream = stream_] {
    const int rank = handle.rank(), size = handle.size();
    const std::int64_t own = slices.lengths(rank) * size_of(type);
    grouped(handle, stream, "an exchange", [&](Calls& calls) {
      for (int k = 1; k < size; ++k) {
        const int to = (rank + k) % size, source = (rank + size - k) % size;
        calls.send(moved(from, to * slices.step * size_of(type)), slices.lengths(to) * size_of(type), to);
        calls.receive(moved(workspace, exchange_slot(source, rank) * own), own, source);
      }
    });
  };
}

NcclCommunicator::Step NcclCommunicator::gather_slices(void* data, DType type, const Slices& slices) const {
  const std::int64_t step = slices.step * size_of(type);
  if (slices.equal) {
    return [=, &handle = *handle_, stream = stream_] {
      if (step > 0)
        handle.settle(ncclAllGather(moved(data, handle.rank() * step), data, static_cast<std::size_t>(step),
                                    ncclUint8, handle.get(), static_cast<cudaStream_t>(stream)),
                      "ncclAllGather");
    };
  }
  return [=, &handle = *handle_, stream = stream_] {
    grouped(handle, stream, "a group of ncclBroadcast", [&](Calls& calls) {
      for (int r = 0; r < handle.size(); ++r)
        calls.broadcast(moved(data, r * step), slices.lengths(r) * size_of(type), r);
    });
  };
}

std::unique_ptr<Collective> NcclCommunicator::all_gather(const void* shard, void* full, std::int64_t bytes) {
  // NCCL takes shard for its own place in full by their addresses, and then copies nothing.
  Step gather = [=, &handle = *handle_, stream = stream_] {
    if (bytes > 0)
      handle.settle(ncclAllGather(shard, full, static_cast<std::size_t>(bytes), ncclUint8, handle.get(),
                                  static_cast<cudaStream_t>(stream)),
                    "ncclAllGather");
  };
  return queued(std::move(gather), all_gather_sent(size(), bytes));
}

std::unique_ptr<Collective> NcclCommunicator::reduce_scatter(const void* full, DType in, void* shard,
                                                             DType out, std::int64_t count, bool accumulate,
                                                             void* workspace, std::int64_t stride) {
  rank_sum(in, out, accumulate);  // refuses types before the first start
  const std::int64_t step = stride > 0 ? stride : count, sent = reduce_scatter_sent(size(), in, count);
  const Slices slices{step, [count](int) { return count; }, step == count};
  // A group of one has no workspace, and nothing to exchange.
  const bool as_it_is = in == out && !accumulate;
  if (!summed_by_nccl(in) || (size() == 1 && !as_it_is)) {
    const RankSources sources{moved(full, rank() * step * size_of(in)), workspace, count * size_of(in),
                              rank(), size()};
    return queued(
        [exchange = exchange_slices(full, workspace, in, slices),
         sum = on_stream(rank_sum_work(in, out, accumulate, sources, shard, count))] {
          exchange();
          sum();
        },
        sent);
  }
  if (as_it_is) return queued(reduce_slices(full, shard, in, slices), sent);
  // The planned workspace has room for the slots of all others, so for one.
  const RankSources reduced{workspace, nullptr, 0, 0, 1};
  return queued(
      [reduce = reduce_slices(full, workspace, in, slices),
       convert = on_stream(rank_sum_work(in, out, accumulate, reduced, shard, count))] {
        reduce();
        convert();
      },
      sent);
}

std::unique_ptr<Collective> NcclCommunicator::all_reduce(const void* from, void* to, DType type,
                                                         std::int64_t count, void* workspace) {
  rank_sum(type, type, false);
  const int ranks = size();
  const Slices slices{all_reduce_slice(ranks, count), [=](int r) { return slice_length(ranks, count, r); },
                      count % ranks == 0};
  const std::int64_t own_bytes = slices.lengths(rank()) * size_of(type),
                     begin = rank() * slices.step * size_of(type);
  Step scatter;
  if (summed_by_nccl(type)) {
    scatter = reduce_slices(from, moved(to, begin), type, slices);
  } else {
    const RankSources sources{moved(from, begin), workspace, own_bytes, rank(), ranks};
    scatter = [exchange = exchange_slices(from, workspace, type, slices),
               sum = on_stream(
                   rank_sum_work(type, type, false, sources, moved(to, begin), slices.lengths(rank())))] {
      exchange();
      sum();
    };
  }
  return queued(
      [scatter = std::move(scatter), gather = gather_slices(to, type, slices)] {
        scatter();
        gather();
      },
      all_reduce_sent(ranks, rank(), type, count));
}

std::unique_ptr<Collective> NcclCommunicator::broadcast(void* data, std::int64_t bytes, int root) {
  require_root(*this, handle_->group(), root);
  return queued(
      [=, &handle = *handle_, stream = stream_] {
        grouped(handle, stream, "ncclBroadcast", [&](Calls& calls) { calls.broadcast(data, bytes, root); });
      },
      broadcast_sent(size(), rank(), root, bytes));
}

std::unique_ptr<Collective> NcclCommunicator::all_to_all(const void* in, void* out, std::int64_t bytes) {
  const StreamWork copy = copy_work(moved(out, rank() * bytes), moved(in, rank() * bytes), bytes);
  return queued(
      [=, &handle = *handle_, stream = stream_] {
        const int rank = handle.rank(), size = handle.size();
        if (bytes > 0) copy(stream);
        grouped(handle, stream, "an exchange", [&](Calls& calls) {
          for (int k = 1; k < size; ++k) {
            const int to = (rank + k) % size, from = (rank + size - k) % size;
            calls.send(moved(in, to * bytes), bytes, to);
            calls.receive(moved(out, from * bytes), bytes, from);
          }
        });
      },
      all_to_all_sent(size(), bytes));
}

std::unique_ptr<Collective> NcclCommunicator::shift(const void* in, void* out, std::int64_t bytes, int by) {
  const Ring ring = ring_of(*this, handle_->group(), by);
  return queued(
      [=, &handle = *handle_, stream = stream_] {
        grouped(handle, stream, "a shift", [&](Calls& calls) {
          calls.send(in, bytes, ring.to);
          calls.receive(out, bytes, ring.from);
        });
      },
      shift_sent(size(), bytes));
}

std::unique_ptr<Collective> NcclCommunicator::send(const void* data, std::int64_t bytes, int to) {
  require_peer(*this, handle_->group(), to, "send to");
  return queued(
      [=, &handle = *handle_, stream = stream_] {
        grouped(handle, stream, "ncclSend", [&](Calls& calls) { calls.send(data, bytes, to); });
      },
      bytes);
}

std::unique_ptr<Collective> NcclCommunicator::recv(void* data, std::int64_t bytes, int from) {
  require_peer(*this, handle_->group(), from, "receive from");
  return queued(
      [=, &handle = *handle_, stream = stream_] {
        grouped(handle, stream, "ncclRecv", [&](Calls& calls) { calls.receive(data, bytes, from); });
      },
      0);
}

}  // namespace ztrain::runtime
