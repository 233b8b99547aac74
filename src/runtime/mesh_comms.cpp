#include "runtime/mesh_comms.hpp"

#include "base/error.hpp"
#include "runtime/mpi_check.hpp"
#include "runtime/self_comm.hpp"

namespace ztrain::runtime {
namespace {

Coordinate place(const Session& session, const MeshShape& shape) {
  REQUIRE(shape.ranks() == session.size(),
          "the mesh {} needs {} ranks, but {} were started: change [mesh] or the number of "
          "processes",
          shape.describe(), shape.ranks(), session.size());
  return Coordinate(shape, session.rank());
}

}  // namespace

Mesh::Mesh(const Session& session, const MeshShape& shape, std::int64_t cut)
    : session_(session),
      coordinate_(place(session, shape)),
      cut_(cut),
      progress_(std::make_shared<Progress>()) {}

Communicator& Mesh::over(AxisSet axes, Queue) {
  std::unique_ptr<Communicator>& group = groups_[axes.bits()];
  if (group) return *group;
  axes_[axes.bits()] = axes;
  if (shape().size(axes) == 1) {
    group = std::make_unique<SelfCommunicator>();
    return *group;
  }
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(session_.world(), coordinate_.group_id(axes), coordinate_.index_in(axes), &comm),
            "MPI_Comm_split");
  group = std::make_unique<MpiCommunicator>(comm, to_string(axes), progress_, cut_);
  return *group;
}

Communicator* Mesh::neighbour(AxisSet axes, int from, int to) {
  const int size = shape().size(axes), index = coordinate_.index_in(axes);
  REQUIRE(from >= 0 && to >= 0 && from < size && to < size && from != to,
          "no neighbours {} and {} in a group of {} ranks over {}", from, to, size, to_string(axes));
  const auto key = std::make_tuple(axes.bits(), from, to);
  if (const auto known = neighbours_.find(key); known != neighbours_.end()) return known->second.get();
  axes_[axes.bits()] = axes;
  const bool member = index == from || index == to;
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(session_.world(), member ? coordinate_.group_id(axes) : MPI_UNDEFINED,
                           index == from ? 0 : 1, &comm),
            "MPI_Comm_split");
  std::unique_ptr<Communicator>& pair = neighbours_[key];
  if (member)
    pair = std::make_unique<MpiCommunicator>(comm, fmt::format("{} ({} to {})", to_string(axes), from, to),
                                             progress_, cut_);
  return pair.get();
}

std::vector<Mesh::Sent> Mesh::bytes_sent() const {
  std::vector<Sent> listing;
  for (const auto& [bits, axes] : axes_) {
    Sent sent{axes, 0};
    if (const auto group = groups_.find(bits); group != groups_.end())
      sent.bytes += group->second->bytes_sent();
    for (const auto& [key, pair] : neighbours_)
      if (std::get<0>(key) == bits && pair) sent.bytes += pair->bytes_sent();
    listing.push_back(sent);
  }
  return listing;
}

}  // namespace ztrain::runtime
