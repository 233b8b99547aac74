// Snapshots in the memory of nodes: any node may go, what is torn or damaged is named and passed over, and
// the newest wins. Nodes are folders here, and ranks are on those that a test says.
#include <fstream>
#include <memory>

#include "checkpoint/neighbours/memory_snapshot.hpp"
#include "checkpoint/neighbours/node_folder.hpp"
#include "checkpoint/neighbours/publish_snapshot.hpp"
#include "checkpoint/verify.hpp"
#include "tests/support/checkpoint_ranks.hpp"

namespace ztrain::checkpoint_neighbours_test {
namespace {

using namespace test;
using checkpoint::MemorySnapshot;
using checkpoint::NodeRing;
using checkpoint::PublishedSnapshot;

/// Ranks of a node are neighbours, as many as there are nodes allow.
std::vector<int> on_nodes(int nodes) {
  std::vector<int> node_of;
  for (int rank = 0; rank < ranks(); ++rank) node_of.push_back(rank * nodes / ranks());
  return node_of;
}

class CheckpointNeighbours : public CheckpointOfRanks {
 protected:
  explicit CheckpointNeighbours(std::int64_t head = 1001)
      : ring_(on_nodes(std::min(ranks(), 3))), self_(mesh_of(1, ranks(), 1), session().rank(), head) {
    if (session().rank() == 0) {
      fs::create_directory(checkpoints_);
      for (int node = 0; node < ring_.nodes(); ++node) checkpoint::make_node_folder(folder_of(node));
    }
    session().barrier();
  }

  fs::path folder_of(int node) const { return folder_ / ("memory" + std::to_string(node)); }
  fs::path own_folder() const { return folder_of(ring_.node_of(session().rank())); }

  std::unique_ptr<MemorySnapshot> begin(std::int64_t step, Shards& shards, int turns = 1) {
    checkpoint::Saving saving(own_folder(), step, self_.place, shards.states(), {{"step", step}},
                              {.node_of = ring_.node_of()});
    return std::make_unique<MemorySnapshot>(std::move(saving), ring_, own_folder(), step, turns);
  }
  /// Values follow from the step.
  void take(std::int64_t step) {
    Shards shards = filled(self_.place, DType::f32, step);
    begin(step, shards)->finish([] {});
    session().barrier();
  }

  /// As the ranks of a start do that has lost the memory of this node; -1: of none.
  PublishedSnapshot publish(int lost = -1, std::int64_t newest = -1) const {
    const fs::path on_node = ring_.node_of(session().rank()) == lost ? folder_ / "empty" : own_folder();
    const auto published =
        checkpoint::publish_newest_snapshot(ring_, {on_node, checkpoints_, "the host"}, newest);
    session().barrier();
    return published;
  }
  void expect_published(std::int64_t step) const {
    const fs::path path = checkpoints_ / ("step_" + std::to_string(step));
    EXPECT_TRUE(filled(self_.place, DType::f32, step) == loaded(path, self_.place, DType::f32)) << path;
    const auto verified = checkpoint::verify(path);
    EXPECT_TRUE(verified.faults.empty()) << verified.faults.front();
    EXPECT_TRUE(verified.others.empty()) << verified.others.front();
    EXPECT_EQ(checkpoint::list(checkpoints_).front(), path);
    session().barrier();
    if (session().rank() == 0) fs::remove_all(path);
    session().barrier();
  }

  /// On rank 0, between barriers.
  void meddle(const std::function<void()>& work) const {
    session().barrier();
    if (session().rank() == 0) work();
    session().barrier();
  }
  static void flip(const fs::path& path, std::int64_t offset) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(offset);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(offset);
    file.put(byte);
    ASSERT_TRUE(file.good()) << path;
  }
  fs::path shard(int node, std::int64_t step, int of_node) const {
    return folder_of(node) / ("step_" + std::to_string(step)) /
           ("shard_000" + std::to_string(of_node) + ".h5");
  }

  NodeRing ring_;
  fs::path checkpoints_ = folder_ / "checkpoints";
  Rank self_;
};

TEST_F(CheckpointNeighbours, AnyNodeMayGo) {
  take(7);
  for (int lost = -1; lost < ring_.nodes(); ++lost) {
    const PublishedSnapshot published = publish(lost);
    EXPECT_EQ(published.step, 7) << lost;
    EXPECT_TRUE(published.passed_over.empty()) << published.passed_over.front();
    expect_published(7);
  }
}

/// By somebody else, while the shard files are written: also where it is not the first node that loses it.
TEST_F(CheckpointNeighbours, ASnapshotThatANodeLosesIsWrittenAnew) {
  Shards shards = filled(self_.place, DType::f32, 7);
  const int last = ring_.nodes() - 1, node = ring_.node_of(session().rank());
  checkpoint::Saving saving(own_folder(), 7, self_.place, shards.states(), {{"step", 7}},
                            {.node_of = ring_.node_of()});
  saving.work({});
  session().barrier();
  if (node == last && ring_.is_first(session().rank())) fs::remove_all(folder_of(last) / "step_7.tmp");
  session().barrier();
  while (!saving.exchange()) saving.work({});
  EXPECT_NE(saving.saved().warning.find("was removed while this checkpoint was written"), std::string::npos);
  EXPECT_TRUE(fs::is_directory(own_folder() / "step_7.tmp"));
  session().barrier();
}

TEST_F(CheckpointNeighbours, EachNodeHasItsOwnFileAndThatOfTheOneBefore) {
  take(7);
  for (int node = 0; node < ring_.nodes(); ++node)
    for (int other = 0; other < ring_.nodes(); ++other)
      EXPECT_EQ(fs::exists(shard(node, 7, other)), other == node || other == ring_.before(node))
          << node << " " << other;
}

TEST_F(CheckpointNeighbours, TheNewestWinsWhereItIsNewerThanAllCheckpoints) {
  take(7);
  take(9);
  EXPECT_EQ(publish(-1, 8).step, 9);
  expect_published(9);
  EXPECT_EQ(publish(-1, 9).step, -1);
  EXPECT_EQ(publish(-1, 12).step, -1);
  take(11);
  EXPECT_FALSE(fs::exists(own_folder() / "step_7")) << "two stay";
  EXPECT_TRUE(fs::exists(own_folder() / "step_9"));
}

/// Of one that is damaged the other copy is taken.
TEST_F(CheckpointNeighbours, OneDamagedCopyIsNoLoss) {
  take(7);
  meddle([&] { flip(shard(0, 7, 0), 5000); });
  EXPECT_EQ(publish().step, 7);
  expect_published(7);
  meddle([&] { fs::remove(shard(1, 7, 1)); });
  EXPECT_EQ(publish().step, 7);
  expect_published(7);
}

TEST_F(CheckpointNeighbours, WhatNoNodeHasAsItWasWrittenIsNamedAndTheOneBeforeTaken) {
  take(7);
  take(9);
  meddle([&] {
    flip(shard(0, 9, 0), 5000);
    flip(shard(1, 9, 0), 6000);
  });
  PublishedSnapshot published = publish();
  EXPECT_EQ(published.step, 7);
  ASSERT_EQ(published.passed_over.size(), 1u);
  for (const std::string part :
       {"step 9: no node has shard_0000.h5 as it was written (the host: ", "memory0/step_9/shard_0000.h5"})
    EXPECT_TRUE(contains(published.passed_over[0], part)) << published.passed_over[0];
  expect_published(7);
  // Two damaged nodes, or one damaged and another gone, are more than it can bear.
  meddle([&] { fs::resize_file(shard(1, 7, 0), 4000); });
  published = publish(0);
  EXPECT_EQ(published.step, -1);
  ASSERT_EQ(published.passed_over.size(), 2u);
  EXPECT_TRUE(contains(published.passed_over[1], "step 7: no node has ")) << published.passed_over[1];
  EXPECT_TRUE(checkpoint::list(checkpoints_).empty());
}

TEST_F(CheckpointNeighbours, AnIndexOrMetadataThatAreDamagedOnOneNodeAreTakenFromAnother) {
  for (const char* name : {"index.h5", "metadata.json"}) {
    take(7);
    meddle([&] { flip(own_folder() / "step_7" / name, 4); });
    EXPECT_EQ(publish().step, 7) << name;
    expect_published(7);
    session().barrier();
    if (session().rank() == ring_.ranks_of(ring_.node_of(session().rank())).front())
      fs::remove_all(own_folder() / "step_7");
    session().barrier();
  }
}

/// One node cannot read what it has, or none can: neither ends the start.
TEST_F(CheckpointNeighbours, WhatCannotBeReadIsNamedAndPassedOver) {
  take(7);
  take(9);
  const auto spoil = [&](int node) {
    const fs::path metadata = folder_of(node) / "step_9/metadata.json";
    fs::remove(metadata);
    fs::create_directory(metadata);
  };
  meddle([&] { spoil(0); });
  PublishedSnapshot published = publish();
  const bool has_others = ring_.nodes() > 1;
  EXPECT_EQ(published.step, has_others ? 9 : 7);
  ASSERT_EQ(published.passed_over.size(), has_others ? 0u : 1u);
  expect_published(has_others ? 9 : 7);
  meddle([&] {
    for (int node = 1; node < ring_.nodes(); ++node) spoil(node);
  });
  published = publish();
  EXPECT_EQ(published.step, 7);
  ASSERT_EQ(published.passed_over.size(), static_cast<std::size_t>(ring_.nodes()));
  for (const std::string& why : published.passed_over) {
    EXPECT_TRUE(contains(why, "step 9: the host: cannot read '")) << why;
    EXPECT_TRUE(contains(why, "step_9/metadata.json': it is a folder, and a regular file is needed")) << why;
  }
  expect_published(7);
}

/// A part that another attempt has left on one node has the same names.
TEST_F(CheckpointNeighbours, PartsOfTwoSnapshotsOfOneStepAreNotMixed) {
  take(7);
  meddle([&] { fs::rename(folder_of(0) / "step_7", folder_ / "earlier"); });
  meddle([&] {
    for (int node = 1; node < ring_.nodes(); ++node) fs::remove_all(folder_of(node) / "step_7");
  });
  Shards shards = filled(self_.place, DType::f32, 70);
  checkpoint::Saving saving(own_folder(), 7, self_.place, shards.states(), {{"step", 7}, {"attempt", 2}},
                            {.node_of = ring_.node_of()});
  MemorySnapshot(std::move(saving), ring_, own_folder(), 7, 1).finish([] {});
  meddle([&] {
    fs::remove_all(folder_of(0) / "step_7");
    fs::rename(folder_ / "earlier", folder_of(0) / "step_7");
  });
  const PublishedSnapshot published = publish();
  ASSERT_EQ(published.step, 7) << published.passed_over.front();
  const fs::path path = checkpoints_ / "step_7";
  EXPECT_TRUE(filled(self_.place, DType::f32, 70) == loaded(path, self_.place, DType::f32));
}

TEST_F(CheckpointNeighbours, AFailureOnOneNodeIsNotSavedOnAllAndTheOneBeforeStays) {
  take(7);
  Shards shards = filled(self_.place, DType::f32, 9);
  const auto snapshot = begin(9, shards);
  for (int stage = 0; stage < 3; ++stage) {
    while (snapshot->works()) {
    }
    session().barrier();
    EXPECT_FALSE(snapshot->advance());
  }
  meddle([&] { fs::remove_all(folder_of(ring_.nodes() - 1) / "step_9.tmp"); });
  EXPECT_THROW(snapshot->finish([] {}), checkpoint::NotSaved);
  session().barrier();
  EXPECT_FALSE(fs::exists(own_folder() / "step_9.tmp"));
  EXPECT_EQ(publish().step, 7);
  expect_published(7);
}

/// Whose files take several parts, which are sent over several turns.
class LargeNeighbours : public CheckpointNeighbours {
 protected:
  LargeNeighbours() : CheckpointNeighbours(250'000) {}
};

TEST_F(LargeNeighbours, AreSentInPartsOverTurns) {
  Shards shards = filled(self_.place, DType::f32, 7);
  const auto snapshot = begin(7, shards, 100);
  int turns = 0;
  for (bool done = false; !done; ++turns) {
    while (snapshot->works()) {
    }
    session().barrier();
    EXPECT_FALSE(fs::exists(own_folder() / "step_7")) << "complete or absent";
    session().barrier();
    done = snapshot->advance();
  }
  const std::int64_t lane = snapshot->bytes() * (ranks() == 4 ? 2 : 1);
  EXPECT_GE(turns, 4 + lane / (9 << 20)) << "four stages of writing, and a part a turn";
  session().barrier();
  EXPECT_EQ(publish(0).step, 7);
  expect_published(7);
}

/// Two snapshots are what a node is planned to have room for, each of its own file and another.
TEST_F(LargeNeighbours, TakeTheMemoryThatIsPlanned) {
  take(7);
  take(9);
  std::int64_t tensors = 0;
  Shards shards(self_.place, DType::f32);
  for (const auto& s : shards.states())
    tensors += self_.layout.unit(s.unit).shard_elements * size_of(s.dtype);
  std::vector<std::int64_t> of_node(static_cast<std::size_t>(ring_.nodes()));
  for (int rank = 0; rank < ranks(); ++rank)
    of_node[static_cast<std::size_t>(ring_.node_of(rank))] += tensors;
  const int own = ring_.node_of(session().rank());
  const std::int64_t planned =
      2 * (of_node[static_cast<std::size_t>(own)] + of_node[static_cast<std::size_t>(ring_.before(own))]);
  const std::int64_t used = checkpoint::bytes_in(own_folder());
  EXPECT_LT(std::abs(used - planned), planned / 100) << used << " of " << planned;
}

}  // namespace
}  // namespace ztrain::checkpoint_neighbours_test
