#pragma once
// Communicators over groups of the mesh. A step's buffers are fixed by its memory plan, so a collective is
// *prepared* once, with its addresses, and then started every step. Order: on one communicator, collectives
// must be started in the same order on every member. One host thread drives all communication.

#include <cstdint>
#include <memory>

#include "base/dtype.hpp"
#include "layout/mesh.hpp"

namespace ztrain::runtime {

/// A prepared collective or point-to-point message. start() returns at once; the buffers belong to it until
/// wait() returned or test() gave true. Then it may be started again. Never allocates after construction.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual void start() = 0;
  /// Returns true if start() only enqueues it on its queue of the device, where it is complete in queue
  /// order; test() and wait() need not be called. Returns false if the host drives it; its buffers must then
  /// be ready on the device when it is started.
  virtual bool on_device() const { return false; }
  /// Returns whether it works in memory that others of its queue use too, so that it must be under way alone.
  virtual bool shares_memory() const { return false; }
  /// Notes that a captured graph that holds a start() of it is launched again.
  virtual void replayed() {}
  /// Makes progress. Returns true once complete.
  virtual bool test() = 0;
  virtual void wait() = 0;
};

/// A group of ranks that communicates. Errors are thrown as ztrain::Error and name the call and the peer.
class Communicator {
 public:
  Communicator() = default;
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual int rank() const = 0;  ///< index within the group
  virtual int size() const = 0;

  /// Gathers the members' shards: full[r * bytes ...] is member r's shard, bytes each. shard may be its own
  /// place in full.
  virtual std::unique_ptr<Collective> all_gather(const void* shard, void* full, std::int64_t bytes) = 0;

  /// Member r gets the sum over members, in the order of sum_steps.hpp, of their full[r * stride ...], count
  /// elements of `in`; stride 0: count. Sums are formed in fp32 (fp64 for fp64) whatever `in` is, then
  /// rounded once to `out`; with accumulate the sum is added to what shard holds. workspace:
  /// reduce_scatter_workspace bytes.
  virtual std::unique_ptr<Collective> reduce_scatter(const void* full, DType in, void* shard, DType out,
                                                     std::int64_t count, bool accumulate, void* workspace,
                                                     std::int64_t stride = 0) = 0;

  /// Sums count elements of `from` into `to`, which may be `from`: always our reduce-scatter followed by our
  /// all-gather, on slices of ceil(count / size) elements. workspace has all_reduce_workspace(type, count)
  /// bytes.
  virtual std::unique_ptr<Collective> all_reduce(const void* from, void* to, DType type, std::int64_t count,
                                                 void* workspace) = 0;

  virtual std::unique_ptr<Collective> broadcast(void* data, std::int64_t bytes, int root) = 0;
  /// Exchanges slots: slot s of out comes from member s's slot rank(). bytes counts one slot.
  virtual std::unique_ptr<Collective> all_to_all(const void* in, void* out, std::int64_t bytes) = 0;
  /// Exchanges the first rows of slots of `rows` rows: sizes[s] rows go to member s, and sizes[size() + s]
  /// come from it; they are read when it starts. What is behind them in a slot of `out` is not defined: a
  /// communicator that cannot read sizes on its device exchanges whole slots.
  virtual std::unique_ptr<Collective> all_to_all_rows(const void* in, void* out, std::int64_t rows,
                                                      std::int64_t row_bytes, const std::int32_t* sizes) = 0;
  /// Member r sends `in` to member r + by of the ring, 0 < by < size, and receives into `out` what member r -
  /// by sent. In a group of one member, by is ignored.
  virtual std::unique_ptr<Collective> shift(const void* in, void* out, std::int64_t bytes, int by) = 0;
  virtual std::unique_ptr<Collective> send(const void* data, std::int64_t bytes, int to) = 0;
  virtual std::unique_ptr<Collective> recv(void* data, std::int64_t bytes, int from) = 0;

  /// Returns the payload bytes that this rank has sent on this communicator since it was made.
  virtual std::int64_t bytes_sent() const = 0;

  /// Throws Error naming the group if communication on the device has failed. Never waits.
  virtual void check() {}
  /// Ends communication on the device that may never end otherwise. Nothing may be started any more.
  virtual void abort() noexcept {}
  /// Registers device memory that collectives will work on while this communicator lives; some networks then
  /// read and write it directly. Returns false if that makes no difference here. Before its use all members
  /// must have agreed that each got true, or have taken it back: see Mesh::register_memory.
  virtual bool register_memory(void*, std::int64_t) { return false; }
  virtual void deregister_memory(void*) {}
};

}  // namespace ztrain::runtime
