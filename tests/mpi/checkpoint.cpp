// Checkpoints written by all ranks and read back for the same and for other meshes.
#include "checkpoint/checkpoint.hpp"

#include <gtest/gtest.h>

#include "tests/support/checkpoint_ranks.hpp"
#include "tests/support/planned_datasets.hpp"

namespace ztrain::checkpoint_test {
namespace {

using namespace test;

class Checkpoint : public CheckpointOfRanks {};

std::int64_t shard_files(const fs::path& path) {
  std::int64_t n = 0;
  for (const auto& entry : fs::directory_iterator(path))
    n += entry.path().filename().string().starts_with("shard_");
  return n;
}

TEST_F(Checkpoint, ComesBackBitwiseOnTheSameMesh) {
  const MeshShape mesh = mesh_of(1, ranks(), 1);
  for (int files : {0, 1, 2, 4}) {
    const fs::path path = save(mesh, DType::f32, 10 + files, {files, 0});
    EXPECT_EQ(shard_files(path), files == 0 ? session().nodes() : std::min(files, ranks()));
    expect_reload(path, mesh, DType::f32);
    EXPECT_EQ(checkpoint::read_metadata(path).at("step"), 10 + files);
  }
}

TEST_F(Checkpoint, LoadsOnOtherNumbersOfShards) {
  const fs::path path = save(mesh_of(1, ranks(), 1), DType::f32, 1, {2, 0});
  for (int shards : {1, 2, 3, 5, 8}) expect_reload(path, mesh_of(1, shards, 1), DType::f32);
}

TEST_F(Checkpoint, Keeps16BitTypesAndConvertsTheModelOnly) {
  const MeshShape mesh = mesh_of(1, ranks(), 1);
  const fs::path narrow = save(mesh, DType::bf16, 1), wide = save(mesh, DType::f32, 2),
                 half = save(mesh, DType::f16, 3);
  for (const fs::path& path : {narrow, wide, half})
    for (const DType model : {DType::f32, DType::bf16, DType::f16})
      expect_reload(path, mesh_of(1, 3, 1), model);

  const Rank self(mesh, session().rank());
  Shards shards(self.place, DType::f32);
  for (StateShard& s : shards.states())
    if (s.state == "optimizer/exp_avg") s.dtype = DType::bf16;
  const std::string error = error_of([&] { checkpoint::load(wide, self.place, shards.states()); });
  EXPECT_TRUE(contains(error, "optimizer/exp_avg") && contains(error, "bf16") && contains(error, "fp32"))
      << error;
}

/// Files are read in blocks of a megabyte, which hold more elements of a narrow type than of a wide one.
TEST_F(Checkpoint, ConvertsAcrossTheBlocksOfItsFiles) {
  constexpr std::int64_t head = 90'001;  // rows of 13: more than two blocks of bf16
  const Rank self(mesh_of(1, ranks(), 1), session().rank(), head);
  for (const auto& [step, from, to] :
       {std::tuple{1, DType::bf16, DType::f32}, {2, DType::f32, DType::bf16}}) {
    Shards shards = filled(self.place, from);
    checkpoint::save(folder_, step, self.place, shards.states(), {{"step", step}}, {1, 0});
    const fs::path path = folder_ / ("step_" + std::to_string(step));
    for (const bool verify : {true, false})
      EXPECT_TRUE(filled(self.place, plain_states(to)) ==
                  loaded(path, self.place, plain_states(to), {.verify = verify}))
          << name_of(from) << " to " << name_of(to) << (verify ? "" : " unverified");
  }
}

TEST_F(Checkpoint, OnlyTheFirstReplicaWrites) {
  if (ranks() % 2 != 0) GTEST_SKIP() << "needs an even number of ranks";
  const fs::path path = save(mesh_of(2, ranks() / 2, 1), DType::f32, 1);
  expect_reload(path, mesh_of(2, ranks() / 2, 1), DType::f32);
  expect_reload(path, mesh_of(1, 3, 1), DType::f32);
}

/// As the errors that a compressed reduction feeds back.
const StateKind each_copys{"optimizer/error", DType::f32, 1, true};

StateKinds with_each_copys() {
  StateKinds kinds = plain_states(DType::f32);
  kinds.insert(kinds.begin() + 1, each_copys);
  return kinds;
}

/// Loads every rank of a mesh, and expects the state of each copy to be zero and the others as they were.
void expect_anew(const fs::path& path, const MeshShape& mesh, const StateKinds& written) {
  for (int r = session().rank(); r < mesh.ranks(); r += ranks()) {
    const Rank reader(mesh, r);
    Shards expected = filled(reader.place, written), found(reader.place, written);
    for (StateShard& shard : expected.states()) shard.of_each_copy = shard.state == each_copys.name;
    for (StateShard& shard : found.states()) shard.of_each_copy = shard.state == each_copys.name;
    expected.clear(std::byte{0}, each_copys.name);
    found.clear(std::byte{0xee});
    EXPECT_EQ(checkpoint::load(path, reader.place, found.states()).anew, std::set{each_copys.name});
    EXPECT_TRUE(found == expected) << mesh.describe() << " rank " << r;
  }
}

TEST_F(Checkpoint, HoldsStatesOfEachCopy) {
  if (ranks() % 2 != 0) GTEST_SKIP() << "needs an even number of ranks";
  const StateKinds kinds = with_each_copys();
  std::vector<MeshShape> writers{mesh_of(2, ranks() / 2, 1)};
  if (ranks() == 4) writers.push_back(mesh_of(2, 1, 2));
  for (const MeshShape& writer : writers) {
    const fs::path path = save(writer, kinds, 1, {3, 0});
    for (const auto& [shards, tensor] : {std::pair{2, 1}, {1, 2}, {3, 1}, {2, 2}})
      expect_reload(path, mesh_of(2, shards, tensor), kinds);
    for (const int copies : {1, 3}) expect_anew(path, mesh_of(copies, 2, 1), kinds);
    EXPECT_TRUE(
        contains(error_of([&] {
                   loaded(path, Rank(writer, 0).place, {kinds[0], kinds[1], kinds[2]});
                 }),
                 "holds the states model, optimizer/exp_avg, optimizer/exp_avg_sq, and the run wants"));
    // A run without such a state leaves it. States are filled by their order, in which it is the second.
    const Rank reader(writer, session().rank());
    Shards plain = loaded(path, reader.place, DType::f32), all = filled(reader.place, kinds);
    for (const StateShard& shard : plain.states()) {
      const auto same = std::ranges::find_if(all.states(), [&](const StateShard& other) {
        return other.state == shard.state && other.unit == shard.unit;
      });
      EXPECT_EQ(std::memcmp(shard.data, same->data,
                            at(reader.layout.unit(shard.unit).shard_elements * size_of(shard.dtype))),
                0)
          << shard.state;
    }
  }
}

TEST_F(Checkpoint, BeginsAStateOfEachCopyThatItLacks) {
  const fs::path path = save(mesh_of(1, ranks(), 1), plain_states(DType::f32), 1);
  StateKinds kinds = plain_states(DType::f32);
  kinds.push_back(each_copys);
  expect_anew(path, mesh_of(2, 2, 1), kinds);
}

TEST_F(Checkpoint, LoadsOtherTensorSlices) {
  std::vector<MeshShape> writers{mesh_of(1, 1, ranks())};
  if (ranks() == 4) writers.push_back(mesh_of(1, 2, 2));
  if (ranks() == 4) writers.push_back(mesh_of(2, 1, 2));
  for (const MeshShape& writer : writers) {
    const fs::path path = save(writer, DType::bf16, 7, {2, 0});
    expect_reload(path, writer, DType::bf16);
    for (int tensor : {1, 2, 3, 4})
      for (int shards : {1, 2, 3}) expect_reload(path, mesh_of(1, shards, tensor), DType::bf16);
  }
}

TEST_F(Checkpoint, IsWrittenAsPlanned) {
  std::vector<MeshShape> meshes{mesh_of(1, ranks(), 1), mesh_of(1, 1, ranks())};
  if (ranks() == 4) meshes.insert(meshes.end(), {mesh_of(2, 1, 2), mesh_of(2, 2, 1)});
  StateKinds kinds = quantised_states(DType::bf16);
  kinds.push_back(each_copys);
  for (const MeshShape& mesh : meshes)
    for (const int files : {0, 3}) {
      std::vector<checkpoint::SavePart> parts;
      for (int tensor = 0; tensor < mesh[Axis::tensor]; ++tensor) {
        const Rank rank(mesh, tensor);
        parts.push_back({rank.layout, checkpoint::forms_of(Shards(rank.place, kinds).states())});
      }
      std::vector<const checkpoint::SavePart*> by_place;
      for (const checkpoint::SavePart& part : parts) by_place.push_back(&part);
      const std::vector<std::int64_t> nodes(static_cast<std::size_t>(ranks()));
      const auto planned = plan_save(mesh, by_place, nodes, files);
      const fs::path path = save(mesh, kinds, 1, {files, 0});
      EXPECT_EQ(datasets_in(path), datasets_of(planned)) << mesh.describe();
      EXPECT_EQ(pieces_in(path), pieces_of(planned)) << mesh.describe();
    }
}

TEST_F(Checkpoint, AFailureOnOneRankIsTheSameErrorOnAll) {
  const Rank self(mesh_of(1, ranks(), 1), session().rank());
  Shards shards = filled(self.place, DType::f32);
  const int culprit = ranks() - 1;
  if (session().rank() == culprit) shards.states()[1].data = nullptr;
  const std::string error = error_of([&] { checkpoint::save(folder_, 1, self.place, shards.states(), {}); });
  EXPECT_TRUE(contains(error, "rank " + std::to_string(culprit)) && contains(error, "unit 1")) << error;
}

TEST_F(Checkpoint, StatesWithoutAnOwnerAreRefused) {
  save(mesh_of(1, ranks(), 1), DType::f32, 1);
  const Rank self(mesh_of(1, ranks(), 1), session().rank());
  Shards shards = filled(self.place, DType::f32);
  if (session().rank() == ranks() - 1) shards.states().erase(shards.states().begin() + 2);
  const std::string error = error_of([&] { checkpoint::save(folder_, 2, self.place, shards.states(), {}); });
  EXPECT_TRUE(contains(error, "lm_head.weight") || contains(error, "model.norm.weight")) << error;
  session().barrier();
  ASSERT_EQ(checkpoint::list(folder_).size(), 1u);
  EXPECT_FALSE(fs::exists(folder_ / "step_2.tmp"));
  expect_reload(*checkpoint::newest(folder_), mesh_of(1, 2, 1), DType::f32);
}

/// By somebody else, while its shard files are written.
TEST_F(Checkpoint, AFolderThatIsRemovedIsWrittenAnew) {
  const MeshShape mesh = mesh_of(1, ranks(), 1);
  const Rank self(mesh, session().rank());
  Shards shards = filled(self.place, DType::f32);
  bool removed = session().rank() != 0;
  int held = 0;
  const auto saved = checkpoint::save(folder_, 3, self.place, shards.states(), {{"step", 3}},
                                      {.hold = [&] { ++held; }}, [&](std::int64_t, std::int64_t) {
                                        if (!std::exchange(removed, true)) fs::remove_all(folder_);
                                      });
  EXPECT_EQ(saved.warning, "'" + (folder_ / "step_3.tmp").string() +
                               "' was removed while this checkpoint was written, and it is written anew; ");
  EXPECT_EQ(held, session().rank() == 0 ? 2 : 0) << "the folder that is made anew is held as well";
  expect_reload(folder_ / "step_3", mesh, DType::f32);
}

TEST_F(Checkpoint, AFileThatIsRemovedIsNamedAndOlderCheckpointsStay) {
  const MeshShape mesh = mesh_of(1, ranks(), 1);
  const fs::path before = save(mesh, DType::f32, 1);
  const Rank self(mesh, session().rank());
  Shards shards = filled(self.place, DType::f32);
  const std::string error = error_of([&] {
    checkpoint::save(folder_, 2, self.place, shards.states(), {{"step", 2}}, {1, 1},
                     [&](std::int64_t done, std::int64_t total) {
                       if (session().rank() == ranks() - 1 && done == total)
                         fs::remove(folder_ / "step_2.tmp" / "shard_0000.h5");
                     });
  });
  EXPECT_TRUE(contains(error, "step_2.tmp/shard_0000.h5': No such file") ||
              contains(error, "step_2.tmp/shard_0000.h5: was removed or replaced while"))
      << error;
  session().barrier();
  EXPECT_EQ(checkpoint::list(folder_), std::vector<fs::path>{before});
  EXPECT_FALSE(fs::exists(folder_ / "step_2.tmp"));
  expect_reload(before, mesh, DType::f32);
}

TEST_F(Checkpoint, H5pyReadsTensorsWholeFromSeveralFilesAndSlices) {
  const std::string python = python_with_h5py();
  if (python.empty()) GTEST_SKIP() << "no python3 with h5py: the virtual datasets are NOT checked";
  std::vector<MeshShape> writers{mesh_of(1, ranks(), 1), mesh_of(1, 1, ranks())};
  if (ranks() == 4) writers.push_back(mesh_of(1, 2, 2));
  for (const MeshShape& writer : writers) expect_h5py_reads(save(writer, DType::bf16, 1, {3, 0}), python);
}

TEST_F(Checkpoint, ProgressReachesTheTotal) {
  const Rank self(mesh_of(1, ranks(), 1), session().rank());
  Shards shards = filled(self.place, DType::f32);
  std::int64_t last = 0, all = -1;
  checkpoint::save(folder_, 1, self.place, shards.states(), {}, {},
                   [&](std::int64_t done, std::int64_t total) {
                     EXPECT_GT(done, last);
                     last = done;
                     all = total;
                   });
  EXPECT_EQ(last, all);
}

}  // namespace
}  // namespace ztrain::checkpoint_test
