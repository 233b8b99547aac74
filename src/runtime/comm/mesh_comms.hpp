#pragma once
// The mesh of ranks. It makes a communicator for any product of its axes when first asked for it.

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "layout/mesh.hpp"
#include "runtime/comm/comm_backend.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::runtime {

/// A communicator that a rank needs: over(axes, queue), or neighbour(axes, from, to, queue) if from is not
/// -1.
struct GroupNeed {
  AxisSet axes;
  Queue queue = 0;
  int from = -1, to = -1;
  Queue work = -1;  ///< this rank's queue of a neighbour's messages; -1: the same queue
};

/// Makes and owns the communicators. Must not outlive its Session or the backend's device. Communicators and
/// collectives must not outlive the Mesh; the memory that they work on must, unless the Mesh is closed
/// before. A Mesh that is closed or destroyed while an error unwinds ends what is still under way.
class Mesh {
 public:
  /// Throws Error unless the shape has as many ranks as the session.
  Mesh(const Session& session, const MeshShape& shape, std::unique_ptr<CommunicatorBackend> backend);
  /// Makes a mesh with MPI on host memory. cut is that of MpiCommunicator.
  Mesh(const Session& session, const MeshShape& shape, std::int64_t cut = largest_message);

  const MeshShape& shape() const { return coordinate_.mesh(); }
  const Coordinate& coordinate() const { return coordinate_; }

  /// Returns the communicator of this rank's group over axes; rank() in it is coordinate().index_in(axes).
  /// The first call for a set of axes and a queue is collective: all ranks must make first calls in the same
  /// order. queue is the device's queue that its collectives are work of. Unless the backend is
  /// MPI, a group has a communicator for each queue, so that a gather does not wait for a reduction.
  Communicator& over(AxisSet axes, Queue queue = 0);

  /// Returns the communicator for messages in one direction between two members of each group over axes,
  /// given by their index in it: rank 0 sends, rank 1 receives. Null on other ranks. queue is the sender's,
  /// which both name; work is this rank's own queue of its messages, and -1 means the same. First calls are
  /// collective over the whole mesh.
  Communicator* neighbour(AxisSet axes, int from, int to, Queue queue = 0, Queue work = -1);

  /// Collective. Makes the communicators that any rank needs, in an order that all agree on, so ranks with
  /// different Programs need not ask for the same ones.
  void make_groups(const std::vector<GroupNeed>& mine);

  struct Sent {
    AxisSet axes;
    std::int64_t bytes;
  };
  /// Returns the payload bytes that this rank has sent, for each set of axes that was asked for, neighbours
  /// included.
  std::vector<Sent> bytes_sent() const;

  /// These forward to CommunicatorBackend.
  bool connects_late() const { return backend_->connects_late(); }
  bool ordered_in_graphs() const { return backend_->ordered_in_graphs(); }
  /// Returns a name for the start banner: "MPI", "NCCL 2.28.9".
  std::string describe() const { return backend_->describe(); }
  /// Returns the bytes of pinned host memory that the communicators made so far take once their collectives
  /// are started.
  std::int64_t staging_bytes() const { return backend_->staging_bytes(); }
  /// Throws Error naming the group if communication on the device has failed. Never waits.
  void check();
  /// Ends, after an error, the communication still under way on the device, which may wait for ranks that are
  /// gone. Nothing may be started any more.
  void abort() noexcept;
  /// Gives all communicators back. Then memory that they worked on may be freed, and nothing else may be
  /// called.
  void close() noexcept;
  const CommunicatorBackend& backend() const { return *backend_; }
  /// Collective. Registers device memory that collectives will work on with all communicators of several
  /// ranks, also those made later. Ranks may have different amounts of it, or none. It must stay allocated
  /// until the Mesh is destroyed. Returns how many of communicators() registered it.
  int register_memory(void* data, std::int64_t bytes);
  /// Returns the number of this rank's communicators of several ranks.
  int communicators() const;

 private:
  struct Region {
    void* data;
    std::int64_t bytes;
  };
  int register_with(const std::vector<Communicator*>& comms, const Region& region);
  std::unique_ptr<Communicator> make(const GroupRequest& group);
  template <class F>
  void each(const F& f);

  const Session& session_;
  Coordinate coordinate_;
  std::unique_ptr<CommunicatorBackend> backend_;
  /// By AxisSet::bits() and queue.
  std::map<std::tuple<std::uint32_t, Queue>, std::unique_ptr<Communicator>> groups_;
  /// Communicators by AxisSet::bits(), queue, from and to.
  std::map<std::tuple<std::uint32_t, Queue, int, int>, std::unique_ptr<Communicator>> neighbours_;
  std::map<std::uint32_t, AxisSet> axes_;
  std::vector<Region> registered_;
};

/// A member that is declared after the memory of an older Mesh. It ends the Mesh's communication before that
/// memory goes.
class CloseMesh {
 public:
  explicit CloseMesh(Mesh& mesh) : mesh_(mesh) {}
  ~CloseMesh() { mesh_.close(); }
  CloseMesh(const CloseMesh&) = delete;
  CloseMesh& operator=(const CloseMesh&) = delete;

 private:
  Mesh& mesh_;
};

/// A member that is declared last. While an error unwinds its owner, it ends a Mesh's communication first:
/// destructors that wait for the device would otherwise wait for ranks that are gone.
class AbortOnError {
 public:
  explicit AbortOnError(Mesh& mesh);
  ~AbortOnError();
  AbortOnError(const AbortOnError&) = delete;
  AbortOnError& operator=(const AbortOnError&) = delete;

 private:
  Mesh& mesh_;
  int exceptions_at_start_;
};

}  // namespace ztrain::runtime
