#pragma once
// The mesh of ranks, with a communicator for any product of its axes, made when first asked for.

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "layout/mesh.hpp"
#include "runtime/device.hpp"
#include "runtime/mpi_comm.hpp"
#include "runtime/session.hpp"

namespace ztrain::runtime {

/// Must not outlive its Session; communicators and their collectives must not outlive the Mesh.
class Mesh {
 public:
  /// Throws Error unless the shape has as many ranks as the session. cut: see MpiCommunicator.
  Mesh(const Session& session, const MeshShape& shape, std::int64_t cut = largest_message);

  const MeshShape& shape() const { return coordinate_.mesh(); }
  const Coordinate& coordinate() const { return coordinate_; }

  /// The communicator of this rank's group over axes; rank() in it is coordinate().index_in(axes). The first
  /// call for a set of axes is collective: all ranks of the mesh must make first calls in the same order.
  /// queue: of the device, on which its collectives are enqueued if they are work of the device; a group has
  /// a communicator for each queue, so that a gather does not wait for a reduction.
  Communicator& over(AxisSet axes, Queue queue = 0);

  /// For messages in one direction between two members of each group over axes, given by their index in it:
  /// rank 0 sends, rank 1 receives. Null on ranks that are neither. First calls are collective over the whole
  /// mesh, as for over().
  Communicator* neighbour(AxisSet axes, int from, int to);

  struct Sent {
    AxisSet axes;
    std::int64_t bytes;
  };
  /// Payload bytes this rank has sent, for each set of axes that was asked for, neighbours included.
  std::vector<Sent> bytes_sent() const;

 private:
  const Session& session_;
  Coordinate coordinate_;
  std::int64_t cut_;
  std::shared_ptr<Progress> progress_;
  std::map<std::uint8_t, std::unique_ptr<Communicator>> groups_;  ///< by AxisSet::bits()
  std::map<std::tuple<std::uint8_t, int, int>, std::unique_ptr<Communicator>> neighbours_;
  std::map<std::uint8_t, AxisSet> axes_;
};

}  // namespace ztrain::runtime
