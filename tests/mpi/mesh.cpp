// Groups over axes of a mesh of four ranks.
#include "runtime/comm/mesh_comms.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/comm/mpi_comm.hpp"
#include "runtime/comm/self_comm.hpp"
#include "runtime/session/mpi_check.hpp"
#include "tests/support/mpi_main.hpp"

namespace ztrain::mesh_test {

using namespace ztrain::runtime;

namespace {

MeshShape two_by_two() {
  MeshShape shape;
  shape[Axis::replicate] = 2;
  shape[Axis::shard] = 2;
  return shape;
}

/// The global ranks of the group, as its communicator sees them.
std::vector<int> members(Communicator& comm, int rank) {
  std::vector<int> ranks(static_cast<std::size_t>(comm.size()), -1);
  const auto gather = comm.all_gather(&rank, ranks.data(), sizeof rank);
  gather->start();
  gather->wait();
  return ranks;
}

TEST(Mesh, CommunicatorsAreTheGroupsOfTheLayout) {
  Mesh mesh(test::session(), two_by_two());
  const Coordinate& at = mesh.coordinate();
  for (const AxisSet axes : {AxisSet(Axis::shard), AxisSet(Axis::replicate), Axis::replicate | Axis::shard,
                             AxisSet::all(), AxisSet(Axis::tensor), Axis::shard | Axis::context}) {
    Communicator& comm = mesh.over(axes);
    EXPECT_EQ(comm.size(), mesh.shape().size(axes)) << to_string(axes);
    EXPECT_EQ(comm.rank(), at.index_in(axes)) << to_string(axes);
    EXPECT_EQ(members(comm, at.rank()), at.group(axes)) << to_string(axes);
    EXPECT_EQ(&mesh.over(axes), &comm) << "made once";
  }
}

TEST(Mesh, BytesAreListedByAxes) {
  Mesh mesh(test::session(), two_by_two());
  members(mesh.over(Axis::shard), 0);
  members(mesh.over(Axis::shard), 0);
  members(mesh.over(Axis::replicate | Axis::shard), 0);
  members(mesh.over(Axis::tensor), 0);
  const auto listing = mesh.bytes_sent();
  ASSERT_EQ(listing.size(), 3u);
  for (const auto& sent : listing) {
    const std::int64_t expected = sent.axes == Axis::shard                       ? 2 * 4
                                  : sent.axes == (Axis::replicate | Axis::shard) ? 3 * 4
                                                                                 : 0;
    EXPECT_EQ(sent.bytes, expected) << to_string(sent.axes);
  }
}

TEST(Mesh, NeighboursTalkInOneDirection) {
  MeshShape shape;
  shape[Axis::pipeline] = 4;
  Mesh mesh(test::session(), shape);
  const int stage = mesh.coordinate()[Axis::pipeline];
  std::int64_t got = -1, sent = 100 + stage;
  std::vector<std::unique_ptr<Collective>> messages;
  for (int from = 0; from < 3; ++from) {
    Communicator* pair = mesh.neighbour(Axis::pipeline, from, from + 1);
    EXPECT_EQ(pair != nullptr, stage == from || stage == from + 1);
    EXPECT_EQ(mesh.neighbour(Axis::pipeline, from, from + 1), pair);
    if (pair == nullptr) continue;
    EXPECT_EQ(pair->size(), 2);
    EXPECT_EQ(pair->rank(), stage == from ? 0 : 1);
    messages.push_back(stage == from ? pair->send(&sent, 8, 1) : pair->recv(&got, 8, 0));
  }
  for (auto& m : messages) m->start();
  for (auto& m : messages) m->wait();
  EXPECT_EQ(got, stage > 0 ? 100 + stage - 1 : -1);
  ASSERT_EQ(mesh.bytes_sent().size(), 1u);
  EXPECT_EQ(mesh.bytes_sent()[0].bytes, stage < 3 ? 8 : 0);
  EXPECT_THROW(mesh.neighbour(Axis::pipeline, 1, 1), Error);
  EXPECT_THROW(mesh.neighbour(Axis::pipeline, 3, 4), Error);
}

TEST(Mesh, OtherNumbersOfRanksAreRefused) {
  MeshShape shape;
  shape[Axis::shard] = 3;
  try {
    Mesh mesh(test::session(), shape);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("needs 3 ranks, but 4 were started"), std::string::npos)
        << error.what();
  }
}

/// Groups of one, which say when they are aborted.
class Abortable final : public MpiBackend {
 public:
  explicit Abortable(int& aborted) : aborted_(aborted), device_(make_host_device()) {}
  std::unique_ptr<Communicator> make_self(Queue queue) override {
    return std::make_unique<One>(*device_, queue, aborted_);
  }

 private:
  class One final : public SelfCommunicator {
   public:
    One(Device& device, Queue queue, int& aborted) : SelfCommunicator(device, queue), aborted_(aborted) {}
    void abort() noexcept override { ++aborted_; }

   private:
    int& aborted_;
  };

  int& aborted_;
  std::unique_ptr<Device> device_;
};

TEST(Mesh, CommunicationEndsBeforeWhatAnErrorDestroys) {
  int aborted = 0;
  struct Owner {
    explicit Owner(int& count)
        : mesh(test::session(), two_by_two(), std::make_unique<Abortable>(count)), last{count}, guard(mesh) {
      mesh.over(Axis::tensor);
      mesh.over(Axis::context);
    }
    struct Last {
      const int& count;
      int expected = 0;
      ~Last() { EXPECT_EQ(count, expected); }
    };
    Mesh mesh;
    Last last;
    AbortOnError guard;
  };
  { const Owner undisturbed(aborted); }
  try {
    Owner owner(aborted);
    owner.last.expected = 2;
    throw std::runtime_error("a rank is gone");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(aborted, 2);
}

/// Communicators that register memory, unless it is this rank that cannot.
class Registering final : public MpiBackend {
 public:
  Registering(std::multiset<void*>& known, bool works) : known_(known), works_(works) {}
  std::unique_ptr<Communicator> make(const GroupRequest& group) override {
    if (group.comm == MPI_COMM_NULL) return nullptr;
    return std::make_unique<One>(group, known_, works_);
  }

 private:
  class One final : public MpiCommunicator {
   public:
    One(const GroupRequest& group, std::multiset<void*>& known, bool works)
        : MpiCommunicator(group, std::make_shared<Progress>()), known_(known), works_(works) {}
    bool register_memory(void* data, std::int64_t) override {
      if (works_) known_.insert(data);
      return works_;
    }
    void deregister_memory(void* data) override { known_.erase(known_.find(data)); }

   private:
    std::multiset<void*>& known_;
    bool works_;
  };

  std::multiset<void*>& known_;
  bool works_;
};

TEST(Mesh, MemoryIsRegisteredOnAllRanksOrOnNone) {
  for (const int fails : {-1, 2}) {
    std::multiset<void*> known;
    const int rank = test::session().rank();
    Mesh mesh(test::session(), two_by_two(), std::make_unique<Registering>(known, rank != fails));
    int early = 0, late = 0, absent = 0;
    mesh.over(Axis::shard);
    mesh.neighbour(Axis::replicate | Axis::shard, 0, 1);
    mesh.register_memory(&early, sizeof early);
    mesh.register_memory(&late, sizeof late);
    mesh.register_memory(&absent, rank == 1 ? 0 : sizeof absent);
    mesh.over(Axis::replicate);
    // The pair of ranks 0 and 1 does without rank 2.
    const std::size_t groups = (fails >= 0 ? 0 : 2) + (rank < 2 ? 1 : 0);
    EXPECT_EQ(known.count(&early), groups) << "rank " << fails << " fails";
    EXPECT_EQ(known.count(&late), groups);
    EXPECT_EQ(known.count(&absent), 0u) << "one rank has nothing there";
  }
}

/// The names of the ranks' machines, rank by rank.
std::vector<std::string> hosts(const Session& s) {
  constexpr std::size_t longest = 256;
  const auto ranks = static_cast<std::size_t>(s.size());
  std::vector<char> mine(longest, '\0'), all(longest * ranks);
  s.host().copy(mine.data(), longest - 1);
  check_mpi(MPI_Allgather(mine.data(), longest, MPI_CHAR, all.data(), longest, MPI_CHAR, s.world()),
            "MPI_Allgather");
  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < ranks; ++rank) names.emplace_back(&all[rank * longest]);
  return names;
}

TEST(Mesh, SessionKnowsTheNode) {
  const Session& s = test::session();
  const std::vector<std::string> names = hosts(s);
  const auto on = [&](const std::string& host, int before) {
    return static_cast<int>(std::count(names.begin(), names.begin() + before, host));
  };
  const auto first = [&](const std::string& host) {
    return static_cast<int>(std::find(names.begin(), names.end(), host) - names.begin());
  };
  std::set<int> firsts;
  int most = 0;
  for (const std::string& host : names) {
    firsts.insert(first(host));
    most = std::max(most, on(host, s.size()));
  }
  EXPECT_EQ(s.nodes(), static_cast<int>(firsts.size()));
  EXPECT_EQ(s.node(), static_cast<int>(std::distance(firsts.begin(), firsts.find(first(s.host())))));
  EXPECT_EQ(s.local_rank(), on(s.host(), s.rank()));
  EXPECT_EQ(s.ranks_on_node(), on(s.host(), s.size()));
  EXPECT_EQ(s.max_ranks_per_node(), most);
  EXPECT_FALSE(s.host().empty());
  EXPECT_GT(resident_bytes(), 0);
  EXPECT_GE(peak_resident_bytes(), resident_bytes());
}

}  // namespace
}  // namespace ztrain::mesh_test
