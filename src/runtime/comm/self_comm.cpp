#include "runtime/comm/self_comm.hpp"

#include "base/error.hpp"

namespace ztrain::runtime {

SelfCommunicator::SelfCommunicator(Device& device, Queue queue)
    : channel_(std::make_shared<QueueChannel>(device, queue)) {}

std::unique_ptr<Collective> SelfCommunicator::submitted(StreamWork work) const {
  return std::make_unique<QueuedCollective>(
      channel_,
      [work = std::move(work), stream = channel_->device.native_stream(channel_->queue)] { work(stream); },
      0);
}

std::unique_ptr<Collective> SelfCommunicator::copy(const void* from, void* to, std::int64_t bytes) const {
  if (from == to || bytes == 0) return std::make_unique<QueuedCollective>(channel_, nullptr, 0);
  return submitted(copy_work(to, from, bytes));
}

std::unique_ptr<Collective> SelfCommunicator::all_gather(const void* shard, void* full, std::int64_t bytes) {
  return copy(shard, full, bytes);
}

std::unique_ptr<Collective> SelfCommunicator::reduce_scatter(const void* full, DType in, void* shard,
                                                             DType out, std::int64_t count, bool accumulate,
                                                             void*, std::int64_t) {
  StreamWork sum = rank_sum_work(in, out, accumulate, {full, nullptr, 0, 0, 1}, shard, count);
  if (in == out && !accumulate) return copy(full, shard, count * size_of(in));
  return submitted(std::move(sum));
}

std::unique_ptr<Collective> SelfCommunicator::all_reduce(const void* from, void* to, DType type,
                                                         std::int64_t count, void*) {
  rank_sum(type, type, false);  // refuses the same types as a larger group
  return copy(from, to, count * size_of(type));
}

std::unique_ptr<Collective> SelfCommunicator::broadcast(void*, std::int64_t, int) {
  return std::make_unique<QueuedCollective>(channel_, nullptr, 0);
}

std::unique_ptr<Collective> SelfCommunicator::all_to_all(const void* in, void* out, std::int64_t bytes) {
  return copy(in, out, bytes);
}

std::unique_ptr<Collective> SelfCommunicator::shift(const void* in, void* out, std::int64_t bytes, int) {
  return copy(in, out, bytes);
}

std::unique_ptr<Collective> SelfCommunicator::send(const void*, std::int64_t, int to) {
  fail("send to rank {} of a group of one rank", to);
}

std::unique_ptr<Collective> SelfCommunicator::recv(void*, std::int64_t, int from) {
  fail("receive from rank {} of a group of one rank", from);
}

}  // namespace ztrain::runtime
