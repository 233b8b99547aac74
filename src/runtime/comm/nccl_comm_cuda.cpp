#include <cuda_runtime.h>
#include <nccl.h>

#include <functional>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "layout/comm_cost.hpp"
#include "runtime/comm/nccl_backend.hpp"
#include "runtime/comm/nccl_handle.hpp"
#include "runtime/comm/peers.hpp"
#include "runtime/comm/queued_collective.hpp"
#include "runtime/comm/rank_sum.hpp"
#include "runtime/comm/sum_steps.hpp"

namespace ztrain::runtime {
namespace {

using Step = std::function<void()>;

Step one_after_the_other(Step first, Step second) {
  return [first = std::move(first), second = std::move(second)] {
    first();
    second();
  };
}

/// Returns NCCL's type of elements that are summed. Data that are only moved travel as bytes.
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
  ncclResult_t failure = ncclSuccess;  ///< the first failure within a group

  /// After a failure within a group, its other calls must still be made, and the group ended.
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
  /// Only root uses `to`.
  void reduce(const void* from, void* to, std::int64_t count, DType type, int root) {
    if (count > 0)
      add(ncclReduce(from, to, static_cast<std::size_t>(count), type_of(type), ncclSum, root, handle.get(),
                     stream));
  }
};

/// Returns whether one call of NCCL's takes all slices.
bool equal(const Slices& slices, int ranks) {
  return slices.step == slices.longest && slices.total == ranks * slices.longest;
}

/// Order and lifetimes are those of MpiCommunicator, but start() only enqueues, so many may be in flight.
class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<NcclHandle> handle, Device& device, Queue queue, SumGroup group,
                   bool nccl_sums)
      : handle_(std::move(handle)),
        channel_(std::make_shared<QueueChannel>(device, queue)),
        stream_(static_cast<cudaStream_t>(device.native_stream(queue))),
        sum_group_(group),
        nccl_sums_(nccl_sums) {}

  int rank() const override { return handle_->rank(); }
  int size() const override { return handle_->size(); }
  std::int64_t bytes_sent() const override { return channel_->sent; }
  void check() override { handle_->check(); }
  void abort() noexcept override { handle_->abort(); }
  bool register_memory(void* data, std::int64_t bytes) override {
    return handle_->register_memory(data, bytes);
  }
  void deregister_memory(void* data) override { handle_->deregister_memory(data); }

  std::unique_ptr<Collective> all_gather(const void* shard, void* full, std::int64_t bytes) override {
    return queued(gather(shard, full, bytes), all_gather_sent(size(), bytes));
  }

  std::unique_ptr<Collective> reduce_scatter(const void* full, DType in, void* shard, DType out,
                                             std::int64_t count, bool accumulate, void* workspace,
                                             std::int64_t stride) override {
    rank_sum(in, out, accumulate);  // refuses types that cannot be summed before the first start
    const Slices slices = reduce_scatter_slices(size(), count, stride);
    const std::int64_t sent = reduce_scatter_sent(sum_group_, in, count);
    // A group of one has no workspace and nothing to exchange.
    const bool as_it_is = in == out && !accumulate;
    if (!summed_by_nccl(in) || (size() == 1 && !as_it_is))
      return queued(exchanged_sum({full, in, shard, out, accumulate, workspace}, slices), sent);
    if (as_it_is) return queued(reduce_slices(full, shard, in, slices), sent);
    // The planned workspace has room for the slots of all others, so it has room for one.
    const RankSources reduced{workspace, nullptr, 0, 0, 1};
    return queued(one_after_the_other(reduce_slices(full, workspace, in, slices),
                                      on_stream(rank_sum_work(in, out, accumulate, reduced, shard, count))),
                  sent);
  }

  std::unique_ptr<Collective> all_reduce(const void* from, void* to, DType type, std::int64_t count,
                                         void* workspace) override {
    rank_sum(type, type, false);
    const Slices slices = all_reduce_slices(size(), count);
    std::byte* const own = moved(to, rank() * slices.step * size_of(type));
    Step scatter = summed_by_nccl(type) ? reduce_slices(from, own, type, slices)
                                        : exchanged_sum({from, type, own, type, false, workspace}, slices);
    return queued(one_after_the_other(std::move(scatter), gather_slices(to, type, slices)),
                  all_reduce_sent(sum_group_, rank(), type, count));
  }

  std::unique_ptr<Collective> broadcast(void* data, std::int64_t bytes, int root) override {
    require_root(*this, handle_->group(), root);
    return queued(grouped("ncclBroadcast", [=](Calls& calls) { calls.broadcast(data, bytes, root); }),
                  broadcast_sent(size(), rank(), root, bytes));
  }

  std::unique_ptr<Collective> all_to_all(const void* in, void* out, std::int64_t bytes) override {
    Step own = on_stream(copy_work(moved(out, rank() * bytes), moved(in, rank() * bytes), bytes));
    Step others = exchanged([=](Calls& calls, int to, int from) {
      calls.send(moved(in, to * bytes), bytes, to);
      calls.receive(moved(out, from * bytes), bytes, from);
    });
    return queued(bytes > 0 ? one_after_the_other(std::move(own), std::move(others)) : std::move(others),
                  all_to_all_sent(size(), bytes));
  }

  std::unique_ptr<Collective> all_to_all_rows(const void* in, void* out, std::int64_t rows,
                                              std::int64_t row_bytes, const std::int32_t*) override {
    return all_to_all(in, out, rows * row_bytes);  // NCCL takes sizes on the host alone
  }

  // NCCL's kernels carry the messages, which takes a few multiprocessors from the products beside them.
  // Copies by copy engines would need a second transport with flags and failures of its own. From NCCL 2.29
  // on, one-sided messages (ncclPutSignal, ncclWaitSignal) can replace the two calls here.
  std::unique_ptr<Collective> shift(const void* in, void* out, std::int64_t bytes, int by) override {
    const Ring ring = ring_of(*this, handle_->group(), by);
    Step step = grouped("a shift", [=](Calls& calls) {
      calls.send(in, bytes, ring.to);
      calls.receive(out, bytes, ring.from);
    });
    return queued(std::move(step), shift_sent(size(), bytes));
  }

  std::unique_ptr<Collective> send(const void* data, std::int64_t bytes, int to) override {
    require_peer(*this, handle_->group(), to, "send to");
    return queued(grouped("ncclSend", [=](Calls& calls) { calls.send(data, bytes, to); }), bytes);
  }

  std::unique_ptr<Collective> recv(void* data, std::int64_t bytes, int from) override {
    require_peer(*this, handle_->group(), from, "receive from");
    return queued(grouped("ncclRecv", [=](Calls& calls) { calls.receive(data, bytes, from); }), 0);
  }

 private:
  bool summed_by_nccl(DType type) const { return size_of(type) > 2 || nccl_sums_; }

  std::unique_ptr<Collective> queued(Step work, std::int64_t sent) const {
    return std::make_unique<QueuedCollective>(channel_, std::move(work), sent);
  }
  Step on_stream(StreamWork work) const {
    return [work = std::move(work), stream = stream_] { work(stream); };
  }

  /// Returns f(Calls&) as one piece of work.
  template <class F>
  Step grouped(const char* what, F f) const {
    return [what, f = std::move(f), &handle = *handle_, stream = stream_] {
      if (const ncclResult_t begin = ncclGroupStart(); begin != ncclSuccess)
        handle.settle(begin, "ncclGroupStart");
      Calls calls{handle, stream};
      f(calls);
      const ncclResult_t end = ncclGroupEnd();
      handle.settle(calls.failure != ncclSuccess ? calls.failure : end, what);
    };
  }

  /// Returns f(Calls&, to, from) for every other rank: it sends to one rank and receives from another, until
  /// each had its turn.
  template <class F>
  Step exchanged(F f) const {
    return grouped("an exchange", [f = std::move(f), rank = rank(), size = size()](Calls& calls) {
      for (int k = 1; k < size; ++k) f(calls, (rank + k) % size, (rank + size - k) % size);
    });
  }

  /// NCCL recognises by the addresses that shard is its own place in full, and then copies nothing.
  Step gather(const void* shard, void* full, std::int64_t bytes) const {
    return [=, &handle = *handle_, stream = stream_] {
      if (bytes > 0)
        handle.settle(
            ncclAllGather(shard, full, static_cast<std::size_t>(bytes), ncclUint8, handle.get(), stream),
            "ncclAllGather");
    };
  }

  /// Every rank's slice of `from` becomes NCCL's sum over ranks; this rank's goes to `to`.
  Step reduce_slices(const void* from, void* to, DType type, const Slices& slices) const {
    if (equal(slices, size())) {
      return [=, &handle = *handle_, stream = stream_, count = static_cast<std::size_t>(slices.step)] {
        if (count > 0)
          handle.settle(ncclReduceScatter(from, to, count, type_of(type), ncclSum, handle.get(), stream),
                        "ncclReduceScatter");
      };
    }
    return grouped("a group of ncclReduce", [=, rank = rank(), size = size()](Calls& calls) {
      for (int r = 0; r < size; ++r)
        calls.reduce(moved(from, r * slices.step * size_of(type)), r == rank ? to : nullptr, slices.length(r),
                     type, r);
    });
  }

  /// Forms the sum that CPU ranks form, with the same bits: see sum_steps.
  Step exchanged_sum(const Reduction& reduction, const Slices& slices) const {
    std::vector<Step> all;
    for (SumStep& step : sum_steps(sum_group_, rank(), reduction, slices)) {
      std::vector<StreamWork> sums;
      for (const SumWork& s : step.sums)
        sums.push_back(rank_sum_work(s.in, s.out, s.accumulate, s.sources, s.to, s.count));
      all.push_back(grouped("an exchange", [step = std::move(step)](Calls& calls) {
        for (const SumSend& s : step.sends) calls.send(s.data, s.bytes, s.to);
        for (const SumReceive& r : step.receives) calls.receive(r.data, r.bytes, r.from);
      }));
      all.push_back([sums = std::move(sums), stream = stream_] {
        for (const StreamWork& sum : sums) sum(stream);
      });
    }
    return [all = std::move(all)] {
      for (const Step& step : all) step();
    };
  }

  /// Sends every rank's slice of data to all ranks, in place.
  Step gather_slices(void* data, DType type, const Slices& slices) const {
    const std::int64_t step = slices.step * size_of(type);
    if (equal(slices, size())) return gather(moved(data, rank() * step), data, step);
    return grouped("a group of ncclBroadcast", [=, size = size()](Calls& calls) {
      for (int r = 0; r < size; ++r)
        calls.broadcast(moved(data, r * step), slices.length(r) * size_of(type), r);
    });
  }

  std::shared_ptr<NcclHandle> handle_;
  std::shared_ptr<QueueChannel> channel_;
  cudaStream_t stream_;
  SumGroup sum_group_;
  bool nccl_sums_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(std::shared_ptr<NcclHandle> handle, Device& device,
                                                     Queue queue, SumGroup group, bool nccl_sums) {
  return std::make_unique<NcclCommunicator>(std::move(handle), device, queue, group, nccl_sums);
}

}  // namespace ztrain::runtime
