#pragma once
// The communicator of a group of one: no messages; copies and conversions are work of its device's queue.

#include "runtime/comm/queued_collective.hpp"
#include "runtime/device/stream_work.hpp"

namespace ztrain::runtime {

class SelfCommunicator : public Communicator {
 public:
  SelfCommunicator(Device& device, Queue queue);
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::unique_ptr<Collective> all_gather(const void* shard, void* full, std::int64_t bytes) override;
  std::unique_ptr<Collective> reduce_scatter(const void* full, DType in, void* shard, DType out,
                                             std::int64_t count, bool accumulate, void* workspace,
                                             std::int64_t stride) override;
  std::unique_ptr<Collective> all_reduce(const void* from, void* to, DType type, std::int64_t count,
                                         void* workspace) override;
  std::unique_ptr<Collective> broadcast(void* data, std::int64_t bytes, int root) override;
  std::unique_ptr<Collective> all_to_all(const void* in, void* out, std::int64_t bytes) override;
  std::unique_ptr<Collective> shift(const void* in, void* out, std::int64_t bytes, int by) override;
  /// Throw Error: there is nobody to talk to.
  std::unique_ptr<Collective> send(const void* data, std::int64_t bytes, int to) override;
  std::unique_ptr<Collective> recv(void* data, std::int64_t bytes, int from) override;
  std::int64_t bytes_sent() const override { return 0; }

 private:
  std::unique_ptr<Collective> submitted(StreamWork work) const;
  std::unique_ptr<Collective> copy(const void* from, void* to, std::int64_t bytes) const;

  std::shared_ptr<QueueChannel> channel_;
};

}  // namespace ztrain::runtime
