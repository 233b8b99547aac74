#pragma once
// The communicator of a group of one: no messages; copies and conversions are work of its device's queue.

#include "base/error.hpp"
#include "runtime/comm/queued_collective.hpp"
#include "runtime/comm/rank_sum.hpp"

namespace ztrain::runtime {

class SelfCommunicator : public Communicator {
 public:
  SelfCommunicator(Device& device, Queue queue) : channel_(std::make_shared<QueueChannel>(device, queue)) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::int64_t bytes_sent() const override { return 0; }
  std::unique_ptr<Collective> all_gather(const void* shard, void* full, std::int64_t bytes) override {
    return copy(shard, full, bytes);
  }
  std::unique_ptr<Collective> reduce_scatter(const void* full, DType in, void* shard, DType out,
                                             std::int64_t count, bool accumulate, void*,
                                             std::int64_t) override {
    StreamWork sum = rank_sum_work(in, out, accumulate, {full, nullptr, 0, 0, 1}, shard, count);
    if (in == out && !accumulate) return copy(full, shard, count * size_of(in));
    return submitted(std::move(sum));
  }
  std::unique_ptr<Collective> all_reduce(const void* from, void* to, DType type, std::int64_t count,
                                         void*) override {
    rank_sum(type, type, false);  // refuses the same types as a larger group
    return copy(from, to, count * size_of(type));
  }
  std::unique_ptr<Collective> broadcast(void*, std::int64_t, int) override {
    return std::make_unique<QueuedCollective>(channel_, nullptr, 0);
  }
  std::unique_ptr<Collective> all_to_all(const void* in, void* out, std::int64_t bytes) override {
    return copy(in, out, bytes);
  }
  std::unique_ptr<Collective> all_to_all_rows(const void* in, void* out, std::int64_t rows,
                                              std::int64_t row_bytes, const std::int32_t*) override {
    return copy(in, out, rows * row_bytes);
  }
  std::unique_ptr<Collective> shift(const void* in, void* out, std::int64_t bytes, int) override {
    return copy(in, out, bytes);
  }
  /// These throw Error, because the group has no other member.
  std::unique_ptr<Collective> send(const void*, std::int64_t, int to) override {
    fail("send to rank {} of a group of one rank", to);
  }
  std::unique_ptr<Collective> recv(void*, std::int64_t, int from) override {
    fail("receive from rank {} of a group of one rank", from);
  }

 private:
  std::unique_ptr<Collective> submitted(StreamWork work) const {
    return std::make_unique<QueuedCollective>(
        channel_,
        [work = std::move(work), stream = channel_->device.native_stream(channel_->queue)] { work(stream); },
        0);
  }

  std::unique_ptr<Collective> copy(const void* from, void* to, std::int64_t bytes) const {
    if (from == to || bytes == 0) return std::make_unique<QueuedCollective>(channel_, nullptr, 0);
    return submitted(copy_work(to, from, bytes));
  }

  std::shared_ptr<QueueChannel> channel_;
};

}  // namespace ztrain::runtime
