#pragma once
// Communicators over MPI, by pairwise exchange. Data are only moved by MPI and summed here, in rank order, so
// results do not depend on the MPI library, on timing or on how messages are cut.

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/comm.hpp"
#include "runtime/comm/exchange.hpp"
#include "runtime/comm/sum_steps.hpp"

namespace ztrain::runtime {

class PhasedCollective;
struct GroupRequest;
struct Phase;

/// Collectives in flight that have a further phase to start. A rank that waits for one moves the others on
/// too, so ranks may wait for collectives in different orders without blocking each other.
class Progress {
 public:
  void add(PhasedCollective& collective);
  void remove(PhasedCollective& collective);
  void advance_others(const PhasedCollective& waiting);

 private:
  PhasedCollective* head_ = nullptr;
};

/// State that a communicator and its collectives share.
struct Channel {
  MPI_Comm comm = MPI_COMM_NULL;
  std::string group;  ///< the axes, for messages
  int rank = 0, size = 1;
  std::int64_t cut = largest_message;
  std::int64_t sent = 0;
  /// Number of collectives started; equal on all members, so it numbers their tags.
  std::int64_t started = 0;
  std::shared_ptr<Progress> progress;
};

/// Collectives must be destroyed before their communicator, and not while in flight.
class MpiCommunicator : public Communicator {
 public:
  /// Takes ownership of the group's comm. Messages longer than cut bytes are sent in parts.
  MpiCommunicator(const GroupRequest& group, std::shared_ptr<Progress> progress,
                  std::int64_t cut = largest_message);
  ~MpiCommunicator() override;

  int rank() const override { return channel_.rank; }
  int size() const override { return channel_.size; }
  std::unique_ptr<Collective> all_gather(const void* shard, void* full, std::int64_t bytes) override;
  std::unique_ptr<Collective> reduce_scatter(const void* full, DType in, void* shard, DType out,
                                             std::int64_t count, bool accumulate, void* workspace,
                                             std::int64_t stride) override;
  std::unique_ptr<Collective> all_reduce(const void* from, void* to, DType type, std::int64_t count,
                                         void* workspace) override;
  std::unique_ptr<Collective> broadcast(void* data, std::int64_t bytes, int root) override;
  std::unique_ptr<Collective> all_to_all(const void* in, void* out, std::int64_t bytes) override;
  std::unique_ptr<Collective> all_to_all_rows(const void* in, void* out, std::int64_t rows,
                                              std::int64_t row_bytes, const std::int32_t* sizes) override;
  std::unique_ptr<Collective> shift(const void* in, void* out, std::int64_t bytes, int by) override;
  std::unique_ptr<Collective> send(const void* data, std::int64_t bytes, int to) override;
  std::unique_ptr<Collective> recv(void* data, std::int64_t bytes, int from) override;
  std::int64_t bytes_sent() const override { return channel_.sent; }

  const std::string& group() const { return channel_.group; }
  SumGroup sum_group() const { return sum_group_; }

 private:
  Exchange exchange() const { return {channel_.comm, channel_.group, channel_.cut}; }
  /// Returns the k-th other member, k in [0, size - 1). Each rank starts with its right-hand neighbour, so
  /// that not all send to the same rank at once.
  int other(int k) const { return (channel_.rank + 1 + k) % channel_.size; }

  std::vector<Phase> sum_phases(const Reduction& reduction, const Slices& slices) const;

  Channel channel_;
  SumGroup sum_group_;
};

}  // namespace ztrain::runtime
