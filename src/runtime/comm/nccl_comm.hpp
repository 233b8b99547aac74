#pragma once
// Communicators over NCCL: collectives are work of a queue of the GPU.
//
// Sums. Elements of 32 bits and more are reduced by ncclReduceScatter, in an order of NCCL's choice. Elements
// of 16 bits it would round at every hop: they are exchanged, and summed by one kernel in fp32 in rank order,
// with the bits of CPU ranks; unless the deck asks for NCCL's own sums (device.reduction).

#include <functional>
#include <memory>

#include "runtime/comm/nccl_handle.hpp"
#include "runtime/comm/queued_collective.hpp"
#include "runtime/device/stream_work.hpp"

namespace ztrain::runtime {

/// Order and lifetimes as for MpiCommunicator, but start() only enqueues: many may be in flight.
class NcclCommunicator : public Communicator {
 public:
  /// nccl_sums: of 16-bit elements too.
  NcclCommunicator(std::shared_ptr<NcclHandle> handle, Device& device, Queue queue, bool nccl_sums);

  int rank() const override { return handle_->rank(); }
  int size() const override { return handle_->size(); }
  std::unique_ptr<Collective> all_gather(const void* shard, void* full, std::int64_t bytes) override;
  std::unique_ptr<Collective> reduce_scatter(const void* full, DType in, void* shard, DType out,
                                             std::int64_t count, bool accumulate, void* workspace,
                                             std::int64_t stride) override;
  std::unique_ptr<Collective> all_reduce(const void* from, void* to, DType type, std::int64_t count,
                                         void* workspace) override;
  std::unique_ptr<Collective> broadcast(void* data, std::int64_t bytes, int root) override;
  std::unique_ptr<Collective> all_to_all(const void* in, void* out, std::int64_t bytes) override;
  std::unique_ptr<Collective> shift(const void* in, void* out, std::int64_t bytes, int by) override;
  std::unique_ptr<Collective> send(const void* data, std::int64_t bytes, int to) override;
  std::unique_ptr<Collective> recv(void* data, std::int64_t bytes, int from) override;
  std::int64_t bytes_sent() const override { return channel_->sent; }
  void check() override { handle_->check(); }
  void abort() noexcept override { handle_->abort(); }
  bool register_memory(void* data, std::int64_t bytes) override {
    return handle_->register_memory(data, bytes);
  }
  void deregister_memory(void* data) override { handle_->deregister_memory(data); }

 private:
  using Step = std::function<void()>;
  /// How the elements of all ranks are cut: rank r has lengths(r) elements, which begin at r * step.
  struct Slices {
    std::int64_t step;  ///< elements
    std::function<std::int64_t(int)> lengths;
    bool equal;  ///< all lengths are `step`: one call of NCCL's does
  };

  bool summed_by_nccl(DType type) const { return size_of(type) > 2 || nccl_sums_; }
  std::unique_ptr<Collective> queued(Step work, std::int64_t sent) const;
  /// Every rank's slice of `from` in the sum over ranks, as NCCL forms it; ours goes to `to`.
  Step reduce_slices(const void* from, void* to, DType type, const Slices& slices) const;
  /// The others' contributions to our slice go to the workspace, one after the other, in rank order.
  Step exchange_slices(const void* from, void* workspace, DType type, const Slices& slices) const;
  /// Every rank's slice of data to all ranks, in place.
  Step gather_slices(void* data, DType type, const Slices& slices) const;
  Step on_stream(StreamWork work) const;

  std::shared_ptr<NcclHandle> handle_;
  std::shared_ptr<QueueChannel> channel_;
  void* stream_;
  bool nccl_sums_;
};

}  // namespace ztrain::runtime
