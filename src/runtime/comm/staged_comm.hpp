#pragma once
// A communicator for memory that MPI cannot reach: contributions are copied to staging memory of the host, an
// MpiCommunicator works on them there, and results are copied back. So sums are formed by the host in rank
// order, bit for bit as on CPU ranks.
//
// The host drives it: start() waits for the copy out, and a collective is complete only when its copy in is,
// so work submitted later to any queue sees the result.

#include <memory>

#include "runtime/comm/mpi_comm.hpp"
#include "runtime/comm/staging.hpp"

namespace ztrain::runtime {

/// One of its queue's communications is in flight at a time. Order and lifetimes as for MpiCommunicator.
class StagedCommunicator : public Communicator {
 public:
  StagedCommunicator(std::unique_ptr<MpiCommunicator> inner, std::shared_ptr<Staging> staging);

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<Collective> all_gather(const void* shard, void* full, std::int64_t bytes) override;
  /// workspace is not touched: sums are formed in staging memory.
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
  std::int64_t bytes_sent() const override { return inner_->bytes_sent(); }

 private:
  std::unique_ptr<MpiCommunicator> inner_;
  std::shared_ptr<Staging> staging_;
};

}  // namespace ztrain::runtime
