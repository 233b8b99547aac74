#pragma once
// The mesh of ranks, with a communicator for any product of its axes, made when first asked for.

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "layout/mesh.hpp"
#include "runtime/comm/comm_backend.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::runtime {

/// A communicator that somebody needs: over(axes, queue), or neighbour(axes, from, to, queue) where from is
/// not -1.
struct GroupNeed {
  AxisSet axes;
  Queue queue = 0;
  int from = -1, to = -1;
  Queue work = -1;  ///< of a neighbour's: the queue here; -1: the same
};

/// Must not outlive its Session, nor the backend's device; communicators and their collectives must not
/// outlive the Mesh, but the memory that they work on must, unless the Mesh is closed before: a Mesh that is
/// closed or destroyed while an error unwinds ends what is still under way.
class Mesh {
 public:
  /// Throws Error unless the shape has as many ranks as the session.
  Mesh(const Session& session, const MeshShape& shape, std::unique_ptr<CommunicatorBackend> backend);
  /// MPI on host memory. cut: see MpiCommunicator.
  Mesh(const Session& session, const MeshShape& shape, std::int64_t cut = largest_message);

  const MeshShape& shape() const { return coordinate_.mesh(); }
  const Coordinate& coordinate() const { return coordinate_; }

  /// The communicator of this rank's group over axes; rank() in it is coordinate().index_in(axes). The first
  /// call for a set of axes (and a queue) is collective: all ranks of the mesh must make first calls in the
  /// same order. queue: of the device, on which its collectives are enqueued if they are work of the device;
  /// there a group has a communicator for each queue, so that a gather does not wait for a reduction.
  Communicator& over(AxisSet axes, Queue queue = 0);

  /// For messages in one direction between two members of each group over axes, given by their index in it:
  /// rank 0 sends, rank 1 receives. Null on ranks that are neither. queue: of the sender, which both name;
  /// work: this rank's own, on which its messages are enqueued; -1: the same. First calls are collective over
  /// the whole mesh, as for over().
  Communicator* neighbour(AxisSet axes, int from, int to, Queue queue = 0, Queue work = -1);

  /// Collective: makes what any rank needs, in an order that all agree on. So ranks whose Programs differ
  /// need not ask for the same communicators, nor in the same order.
  void make_groups(const std::vector<GroupNeed>& mine);

  struct Sent {
    AxisSet axes;
    std::int64_t bytes;
  };
  /// Payload bytes this rank has sent, for each set of axes that was asked for, neighbours included.
  std::vector<Sent> bytes_sent() const;

  /// See CommunicatorBackend.
  bool connects_late() const { return backend_->connects_late(); }
  bool ordered_in_graphs() const { return backend_->ordered_in_graphs(); }
  /// For the start banner: "MPI", "NCCL 2.28.9".
  std::string describe() const { return backend_->describe(); }
  /// Pinned host memory that the communicators made so far take once their collectives are started.
  std::int64_t staging_bytes() const { return backend_->staging_bytes(); }
  /// Throws Error naming the group when communication that the device was given has failed. Never waits.
  void check();
  /// After an error: ends what communicators still have under way on the device, which otherwise waits for
  /// ranks that may be gone. Nothing may be started any more.
  void abort() noexcept;
  /// Gives all communicators back: behind it, memory that they worked on may go, and nothing else be called.
  void close() noexcept;
  const CommunicatorBackend& backend() const { return *backend_; }
  /// Collective. Device memory that collectives will work on, for all communicators of several ranks, those
  /// made later too; ranks may have more or less of it, or none. It must stay allocated until the Mesh is
  /// destroyed. Returns how many of communicators() registered it.
  int register_memory(void* data, std::int64_t bytes);
  /// Number of this rank's communicators of several ranks.
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
  std::map<std::tuple<std::uint32_t, Queue>, std::unique_ptr<Communicator>> groups_;  ///< by AxisSet::bits()
  /// By AxisSet::bits(), queue, from and to.
  std::map<std::tuple<std::uint32_t, Queue, int, int>, std::unique_ptr<Communicator>> neighbours_;
  std::map<std::uint32_t, AxisSet> axes_;
  std::vector<Region> registered_;
};

/// For a member that is declared behind the memory of a Mesh that was there before: ends the Mesh's
/// communication before that memory goes.
class CloseMesh {
 public:
  explicit CloseMesh(Mesh& mesh) : mesh_(mesh) {}
  ~CloseMesh() { mesh_.close(); }
  CloseMesh(const CloseMesh&) = delete;
  CloseMesh& operator=(const CloseMesh&) = delete;

 private:
  Mesh& mesh_;
};

/// For a member that is declared last: while an error unwinds its owner it ends a Mesh's communication first,
/// so that whatever waits for the device when it is destroyed does not wait for ranks that are gone.
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
