// Checkpoints that threads write beside training: the bytes of those that a run waits for, and never a part.
#include <fstream>
#include <map>
#include <sstream>

#include "checkpoint/background_save.hpp"
#include "tests/support/checkpoint_ranks.hpp"

namespace ztrain::checkpoint_background_test {
namespace {

using namespace test;
using checkpoint::BackgroundSave;
using checkpoint::Saving;

class CheckpointBackground : public CheckpointOfRanks {
 protected:
  CheckpointBackground() : self_(mesh_of(1, ranks(), 1), session().rank()) {}

  /// In a folder of its own below that of the ranks.
  Saving saving(const char* name, Shards& shards, std::int64_t step,
                const checkpoint::SaveOptions& options = {}) {
    return Saving(folder_ / name, step, self_.place, shards.states(), {{"step", step}}, options);
  }
  void save(const char* name, Shards& shards, std::int64_t step) {
    checkpoint::save(folder_ / name, step, self_.place, shards.states(), {{"step", step}});
  }
  void expect_loads(const fs::path& path, std::int64_t salt) const {
    EXPECT_TRUE(filled(self_.place, DType::f32, salt) == loaded(path, self_.place, DType::f32)) << path;
  }

  Rank self_;
};

std::map<std::string, std::string> files_in(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ostringstream bytes;
    bytes << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    files[entry.path().filename().string()] = bytes.str();
  }
  return files;
}

TEST_F(CheckpointBackground, HasTheBytesOfOneThatWasWaitedFor) {
  Shards shards = filled(self_.place, DType::f32);
  save("waited", shards, 3);
  BackgroundSave behind(saving("behind", shards, 3));
  behind.finish([] {});
  session().barrier();
  const auto expected = files_in(folder_ / "waited" / "step_3");
  EXPECT_GE(expected.size(), 3u) << "metadata, the index, and a file of states for each node";
  EXPECT_TRUE(files_in(folder_ / "behind" / "step_3") == expected);
  EXPECT_EQ(behind.written(), behind.bytes());
  EXPECT_GT(behind.bytes(), 0);
}

/// As training does: looks behind each step, and goes on. Complete or absent at each of them.
TEST_F(CheckpointBackground, AdvancesByStagesAndIsThereAtTheLastAlone) {
  Shards shards = filled(self_.place, DType::f32);
  BackgroundSave behind(saving("behind", shards, 3));
  int stages = 0;
  for (bool done = false; !done; ++stages) {
    while (behind.works()) {
    }
    session().barrier();
    // The last stage gives the name before ranks have agreed that it did.
    if (stages < 3) {
      EXPECT_TRUE(checkpoint::list(folder_ / "behind").empty()) << stages;
    }
    session().barrier();
    done = behind.advance();
  }
  EXPECT_EQ(stages, 4);
  expect_loads(folder_ / "behind" / "step_3", 0);
}

TEST_F(CheckpointBackground, AFailureOnOneRankIsNotSavedOnAllAndTheOneBeforeStays) {
  Shards shards = filled(self_.place, DType::f32, 5);
  save("behind", shards, 1);
  BackgroundSave behind(saving("behind", shards, 2));
  // Once its files are there, one is removed.
  for (int stage = 0; stage < 2; ++stage) {
    while (behind.works()) {
    }
    session().barrier();
    if (stage == 1 && session().rank() == 0) fs::remove(folder_ / "behind" / "step_2.tmp" / "shard_0000.h5");
    session().barrier();
    if (stage == 0) {
      EXPECT_FALSE(behind.advance());
    }
  }
  EXPECT_THROW(behind.finish([] {}), checkpoint::NotSaved);
  session().barrier();
  EXPECT_EQ(checkpoint::list(folder_ / "behind"), std::vector<fs::path>{folder_ / "behind" / "step_1"});
  EXPECT_FALSE(fs::exists(folder_ / "behind" / "step_2.tmp"));
  expect_loads(folder_ / "behind" / "step_1", 5);
}

TEST_F(CheckpointBackground, AFolderThatIsRemovedIsWrittenAnew) {
  Shards shards = filled(self_.place, DType::f32, 2);
  BackgroundSave behind(saving("behind", shards, 2));
  while (behind.works()) {
  }
  session().barrier();
  if (session().rank() == 0) fs::remove_all(folder_ / "behind");
  session().barrier();
  behind.finish([] {});
  EXPECT_NE(behind.saved().warning.find("is written anew"), std::string::npos) << behind.saved().warning;
  expect_loads(folder_ / "behind" / "step_2", 2);
}

/// The run has failed on this rank alone: nobody is asked, and nothing is left that passes for a checkpoint.
TEST_F(CheckpointBackground, OneThatIsGivenUpIsNone) {
  Shards shards = filled(self_.place, DType::f32, 5);
  save("behind", shards, 1);
  { const BackgroundSave given_up(saving("behind", shards, 2)); }
  session().barrier();
  EXPECT_EQ(checkpoint::list(folder_ / "behind"), std::vector<fs::path>{folder_ / "behind" / "step_1"});
  save("behind", shards, 2);
  expect_loads(folder_ / "behind" / "step_2", 5);
  EXPECT_FALSE(fs::exists(folder_ / "behind" / "step_2.tmp"));
}

}  // namespace
}  // namespace ztrain::checkpoint_background_test
