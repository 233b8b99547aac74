#include "runtime/comm/mesh_comms.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <set>

#include "base/error.hpp"
#include "runtime/session/mpi_check.hpp"

namespace ztrain::runtime {
namespace {

Coordinate place(const Session& session, const MeshShape& shape) {
  REQUIRE(shape.ranks() == session.size(),
          "the mesh {} needs {} ranks, but {} were started: change [mesh] or the number of processes",
          shape.describe(), shape.ranks(), session.size());
  return Coordinate(shape, session.rank());
}

/// Collective over the session. Splits it into groups.
GroupRequest split(const Session& session, int color, int key, std::string name, Queue queue) {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(session.world(), color < 0 ? MPI_UNDEFINED : color, key, &comm), "MPI_Comm_split");
  return {comm, color, key, std::move(name), queue};
}

/// Returns this rank's queue for a need that both sides name alike; -1 if this rank has no such need.
Queue work_of(const std::vector<GroupNeed>& mine, const GroupNeed& need, bool one_per_queue) {
  for (const GroupNeed& own : mine)
    if (own.axes == need.axes && own.from == need.from && own.to == need.to &&
        (!one_per_queue || own.queue == need.queue))
      return own.work;
  return -1;
}

bool of_several(const Communicator* comm) {
  return comm != nullptr && comm->size() > 1;
}

}  // namespace

Mesh::Mesh(const Session& session, const MeshShape& shape, std::unique_ptr<CommunicatorBackend> backend)
    : session_(session), coordinate_(place(session, shape)), backend_(std::move(backend)) {}

Mesh::Mesh(const Session& session, const MeshShape& shape, std::int64_t cut)
    : Mesh(session, shape, std::make_unique<MpiBackend>(cut)) {}

Communicator& Mesh::over(AxisSet axes, Queue queue) {
  if (!backend_->one_per_queue()) queue = 0;
  const auto key = std::make_pair(axes.bits(), queue);
  if (const auto known = groups_.find(key); known != groups_.end()) return *known->second;
  axes_[axes.bits()] = axes;
  if (shape().size(axes) == 1) return *(groups_[key] = backend_->make_self(queue));
  GroupRequest group =
      split(session_, coordinate_.group_id(axes), coordinate_.index_in(axes), to_string(axes), queue);
  group.sum_group = sum_group(shape(), axes);
  return *(groups_[key] = make(group));
}

Communicator* Mesh::neighbour(AxisSet axes, int from, int to, Queue queue, Queue work) {
  const int size = shape().size(axes), index = coordinate_.index_in(axes);
  REQUIRE(from >= 0 && to >= 0 && from < size && to < size && from != to,
          "no neighbours {} and {} in a group of {} ranks over {}", from, to, size, to_string(axes));
  const auto key = std::make_tuple(axes.bits(), backend_->one_per_queue() ? queue : 0, from, to);
  if (const auto known = neighbours_.find(key); known != neighbours_.end()) return known->second.get();
  axes_[axes.bits()] = axes;
  const bool member = index == from || index == to;
  GroupRequest pair = split(session_, member ? coordinate_.group_id(axes) : -1, index == from ? 0 : 1,
                            fmt::format("{} ({} to {})", to_string(axes), from, to), work < 0 ? queue : work);
  pair.pair = true;
  return (neighbours_[key] = make(pair)).get();
}

void Mesh::make_groups(const std::vector<GroupNeed>& mine) {
  constexpr int numbers = 4;  // integers that describe one need
  std::vector<int> own;
  for (const GroupNeed& n : mine)
    own.insert(own.end(),
               {static_cast<int>(n.axes.bits()), backend_->one_per_queue() ? n.queue : 0, n.from, n.to});
  const int count = static_cast<int>(own.size());
  std::vector<int> counts(static_cast<std::size_t>(session_.size())), begins(counts.size(), 0);
  check_mpi(MPI_Allgather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, session_.world()), "MPI_Allgather");
  for (std::size_t r = 1; r < counts.size(); ++r) begins[r] = begins[r - 1] + counts[r - 1];
  std::vector<int> all(static_cast<std::size_t>(begins.back() + counts.back()));
  check_mpi(MPI_Allgatherv(own.data(), count, MPI_INT, all.data(), counts.data(), begins.data(), MPI_INT,
                           session_.world()),
            "MPI_Allgatherv");
  std::set<std::array<int, numbers>> needs;
  for (std::size_t i = 0; i < all.size(); i += numbers)
    needs.insert({all[i], all[i + 1], all[i + 2], all[i + 3]});
  for (const auto& [bits, queue, from, to] : needs) {
    const AxisSet axes = AxisSet::from_bits(static_cast<std::uint32_t>(bits));
    if (from < 0)
      over(axes, queue);
    else
      neighbour(axes, from, to, queue, work_of(mine, {axes, queue, from, to}, backend_->one_per_queue()));
  }
}

std::unique_ptr<Communicator> Mesh::make(const GroupRequest& group) {
  std::unique_ptr<Communicator> comm = backend_->make(group);
  for (const Region& region : registered_) register_with({comm.get()}, region);
  return comm;
}

std::vector<Mesh::Sent> Mesh::bytes_sent() const {
  std::vector<Sent> listing;
  for (const auto& [bits, axes] : axes_) {
    Sent sent{axes, 0};
    for (const auto& [key, group] : groups_)
      if (std::get<0>(key) == bits) sent.bytes += group->bytes_sent();
    for (const auto& [key, pair] : neighbours_)
      if (std::get<0>(key) == bits && pair) sent.bytes += pair->bytes_sent();
    listing.push_back(sent);
  }
  return listing;
}

template <class F>
void Mesh::each(const F& f) {
  for (const auto& [key, group] : groups_) f(*group);
  for (const auto& [key, pair] : neighbours_)
    if (pair) f(*pair);
}

void Mesh::check() {
  each([](Communicator& comm) { comm.check(); });
}

void Mesh::abort() noexcept {
  each([](Communicator& comm) { comm.abort(); });
}

void Mesh::close() noexcept {
  groups_.clear();
  neighbours_.clear();
  backend_.reset();  // the backend may hold communicators that others were split from
}

AbortOnError::AbortOnError(Mesh& mesh) : mesh_(mesh), exceptions_at_start_(std::uncaught_exceptions()) {}

AbortOnError::~AbortOnError() {
  if (std::uncaught_exceptions() > exceptions_at_start_) mesh_.abort();
}

int Mesh::communicators() const {
  const auto counted = [](const auto& entry) { return of_several(entry.second.get()); };
  return static_cast<int>(std::ranges::count_if(groups_, counted) +
                          std::ranges::count_if(neighbours_, counted));
}

int Mesh::register_memory(void* data, std::int64_t bytes) {
  registered_.push_back({data, bytes});
  // All ranks loop over the same list; a rank that is in no group of a kind has a null there.
  std::vector<Communicator*> comms;
  for (const auto& [key, group] : groups_) comms.push_back(group.get());
  for (const auto& [key, pair] : neighbours_) comms.push_back(pair.get());
  return register_with(comms, registered_.back());
}

/// Collective over the session. If some ranks of a group fail to register, nobody keeps the registration,
/// because communication between registered and other memory is undefined.
int Mesh::register_with(const std::vector<Communicator*>& comms, const Region& region) {
  const std::vector<int> mine = session_.agree("registering memory", [&] {
    std::vector<int> registered;
    for (Communicator* comm : comms)
      registered.push_back(comm == nullptr ||
                           (region.bytes > 0 && comm->register_memory(region.data, region.bytes)));
    return registered;
  });
  std::vector<int> all(mine.size());
  check_mpi(MPI_Allreduce(mine.data(), all.data(), static_cast<int>(mine.size()), MPI_INT, MPI_MIN,
                          session_.world()),
            "MPI_Allreduce");
  session_.agree("registering memory", [&] {
    for (std::size_t i = 0; i < comms.size(); ++i)
      if (comms[i] != nullptr && mine[i] != 0 && all[i] == 0) comms[i]->deregister_memory(region.data);
  });
  int registered = 0;
  for (std::size_t i = 0; i < comms.size(); ++i) registered += of_several(comms[i]) && all[i] != 0;
  return registered;
}

}  // namespace ztrain::runtime
