// The folder of a node's snapshots: whose it is, and what is left of runs that have ended.

#include "checkpoint/neighbours/node_folder.hpp"

#include <gtest/gtest.h>

#include <stdlib.h>

#include <chrono>
#include <fstream>

#include "checkpoint/retention.hpp"
#include "files/posix_file.hpp"
#include "tests/support/error_of.hpp"

namespace ztrain::checkpoint::node_folder_test {
namespace {

namespace fs = std::filesystem;
using test::error_of;

/// Removed with its content.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "ztrain-node-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

fs::path run_in(const fs::path& memory, const fs::path& checkpoints) {
  fs::create_directories(checkpoints);
  const fs::path folder = node_folder(memory, snapshot_token(checkpoints, false));
  make_node_folder(folder);
  name_owner(folder, checkpoints);
  return folder;
}

void make_snapshot(const fs::path& folder, std::int64_t step, std::size_t bytes = 100) {
  begin_snapshot(folder, step);
  const fs::path path = folder / ("step_" + std::to_string(step));
  std::ofstream(path.string() + ".tmp/metadata.json") << "{\"step\": " << step << "}";
  std::ofstream(path.string() + ".tmp/shard_0001.h5") << std::string(bytes, 'x');
  fs::rename(path.string() + ".tmp", path);
}

/// As long as that is there, by whatever name.
TEST(NodeFolder, IsTheOriginalsAndNotACopys) {
  const TemporaryFolder temporary;
  const fs::path original = temporary.path() / "original", copy = temporary.path() / "copy",
                 other_name = temporary.path() / "link";
  const fs::path folder = run_in(temporary.path(), original);
  fs::copy(original, copy, fs::copy_options::recursive);
  fs::create_directory_symlink(original, other_name);
  EXPECT_TRUE(belongs_to_another(folder, copy));
  EXPECT_FALSE(belongs_to_another(folder, original));
  EXPECT_FALSE(belongs_to_another(folder, other_name));
  fs::remove_all(original);
  EXPECT_FALSE(belongs_to_another(folder, copy)) << "it was moved";
}

TEST(NodeFolder, GoesWithTheFolderOfCheckpoints) {
  const TemporaryFolder own;
  const fs::path checkpoints = own.path() / "checkpoints";
  fs::create_directory(checkpoints);
  const std::string token = snapshot_token(checkpoints, false);
  EXPECT_EQ(snapshot_token(checkpoints, false), token);
  const std::string other = snapshot_token(checkpoints, true);
  EXPECT_NE(other, token);
  EXPECT_EQ(snapshot_token(checkpoints, false), other);
  fs::remove_all(checkpoints);
  fs::create_directory(checkpoints);
  EXPECT_NE(snapshot_token(checkpoints, false), other);
  std::ofstream(checkpoints / ".snapshots") << "../../elsewhere";
  EXPECT_FALSE(contains(snapshot_token(checkpoints, false), "."));
}

TEST(NodeFolder, IsForThisUserAlone) {
  const TemporaryFolder own;
  const fs::path folder = run_in(own.path(), own.path() / "checkpoints");
  EXPECT_EQ(fs::status(folder).permissions() & fs::perms::all, fs::perms::owner_all);
  EXPECT_TRUE(contains(error_of([&] { make_node_folder(own.path() / "nowhere/ztrain-1"); }),
                       "checkpoint.memory_folder: '" + (own.path() / "nowhere").string() + "' is no folder"));
}

TEST(NodeFolder, KeepsTheNewestTwoOfWhichOneMayBeTorn) {
  const TemporaryFolder own;
  const fs::path folder = run_in(own.path(), own.path() / "checkpoints");
  for (const int step : {5, 10}) make_snapshot(folder, step);
  begin_snapshot(folder, 15);
  std::ofstream(folder / "step_15.tmp/shard_0001.h5") << "half";
  const auto held = snapshots_in(folder);
  ASSERT_EQ(held.size(), 1u);
  EXPECT_EQ(held[0].step, 10);
  ASSERT_EQ(held[0].shards.size(), 1u);
  EXPECT_EQ(held[0].shards[0].bytes, 100);
  begin_snapshot(folder, 20);
  EXPECT_FALSE(fs::exists(folder / "step_15.tmp"));
  EXPECT_TRUE(fs::exists(folder / "step_10"));
  remove_snapshots(folder);
  EXPECT_TRUE(snapshots_in(folder).empty());
  EXPECT_TRUE(fs::exists(folder));
}

TEST(NodeFolder, NamesASnapshotThatCannotBeRead) {
  const TemporaryFolder own;
  const fs::path folder = run_in(own.path(), own.path() / "checkpoints");
  for (const int step : {5, 10}) make_snapshot(folder, step);
  fs::remove(folder / "step_10/metadata.json");
  fs::create_directory(folder / "step_10/metadata.json");
  const auto held = snapshots_in(folder);
  ASSERT_EQ(held.size(), 2u);
  EXPECT_EQ(held[0].fault, "cannot read '" + (folder / "step_10/metadata.json").string() +
                               "': it is a folder, and a regular file is needed");
  EXPECT_TRUE(held[0].seal.empty());
  EXPECT_EQ(held[1].step, 5);
  EXPECT_EQ(held[1].fault, "");
}

TEST(NodeFolder, TellsPartsOfTwoSnapshotsOfOneStepApart) {
  const TemporaryFolder own;
  const fs::path one = run_in(own.path(), own.path() / "a"), other = run_in(own.path(), own.path() / "b");
  make_snapshot(one, 5);
  make_snapshot(other, 5);
  EXPECT_EQ(snapshots_in(one)[0].seal, snapshots_in(other)[0].seal);
  std::ofstream(other / "step_5/metadata.json") << "{\"step\": 5, \"loss\": 1}";
  EXPECT_NE(snapshots_in(one)[0].seal, snapshots_in(other)[0].seal);
}

TEST(NodeFolder, RemovesWhatDeadRunsHaveLeft) {
  const TemporaryFolder own;
  const fs::path mine = own.path() / "mine", memory = own.path() / "memory";
  fs::create_directory(memory);
  const fs::path before = run_in(memory, mine);
  make_snapshot(before, 5);
  snapshot_token(mine, true);
  const fs::path now = run_in(memory, mine), recent = run_in(memory, own.path() / "recent"),
                 old = run_in(memory, own.path() / "old"), alive = run_in(memory, own.path() / "alive");
  for (const fs::path& path : {old, alive})
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(2));
  fs::create_directories(memory / "ztrain-of-something-else");
  EXPECT_EQ(bytes_of_run(memory, mine), bytes_in(before) + bytes_in(now));
  EXPECT_GT(bytes_in(before), 100);
  const auto held = PosixFile::open_or_create(alive / ".lock", "test");
  ASSERT_TRUE(held.lock());
  fs::last_write_time(alive, fs::file_time_type::clock::now() - std::chrono::hours(2));
  EXPECT_EQ(remove_leftovers(now, mine), 2);
  EXPECT_FALSE(fs::exists(before)) << "of the same checkpoints, which another run now has";
  EXPECT_FALSE(fs::exists(old));
  for (const fs::path& path : {now, recent, alive, memory / "ztrain-of-something-else"})
    EXPECT_TRUE(fs::exists(path)) << path;
}

TEST(NodeFolder, SaysWhereThereIsNoRoom) {
  const TemporaryFolder own;
  require_room_in_memory(own.path(), 1000);
  const std::string said = error_of([&] { require_room_in_memory(own.path() / ".", std::int64_t{1} << 60); });
  EXPECT_TRUE(contains(said, "checkpoint.memory_folder: snapshots take 1048576.00 TiB")) << said;
}

}  // namespace
}  // namespace ztrain::checkpoint::node_folder_test
