// Which checkpoints stay, and what a save does that has no room. One rank.
#include "checkpoint/retention.hpp"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/verify.hpp"
#include "tests/support/checkpoint_model.hpp"

namespace {
/// The folder that no fsync makes durable; none where it is empty.
std::filesystem::path& failing_folder() {
  static std::filesystem::path folder;
  return folder;
}
}  // namespace

/// In place of the C library's in this executable.
extern "C" int fsync(int file) {
  std::error_code unknown;
  const auto path = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", file), unknown);
  if (!failing_folder().empty() && path == failing_folder()) return errno = EIO, -1;
  return static_cast<int>(::syscall(SYS_fsync, file));
}

namespace ztrain::checkpoint_retention_test {
namespace {

using namespace test;
namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;

class CheckpointRetention : public testing::Test {
 protected:
  CheckpointRetention() : layout_(awkward_parameters(1), {3, {1}}), place_{&layout_, Coordinate({}, 0)} {}

  checkpoint::Saved save(std::int64_t step, const checkpoint::SaveOptions& options = {}) {
    Shards shards = filled(place_, DType::f32, step);
    return checkpoint::save(folder(), step, place_, shards.states(), {{"step", step}}, options);
  }
  Steps steps() const {
    Steps found;
    for (const auto& path : checkpoint::list(folder())) found.push_back(checkpoint::step_of(path));
    return found;
  }
  void damage(std::int64_t step) const {
    fs::remove(folder() / fmt::format("step_{}", step) / "metadata.json");
  }
  const fs::path& folder() const { return temporary_.path(); }

  TemporaryFolder temporary_;
  Layout layout_;
  Place place_;
};

TEST_F(CheckpointRetention, EveryNthStays) {
  for (std::int64_t step = 1; step <= 9; ++step)
    save(step, {.keep = 2, .keep_every = 4, .proven_step = step - 1});
  EXPECT_EQ(steps(), (Steps{9, 8, 4}));
  save(10, {.keep = 1, .proven_step = 9});
  EXPECT_EQ(steps(), (Steps{10, 9}));
}

TEST_F(CheckpointRetention, WhereANameMayNotLastTheOlderOnesStay) {
  save(1);
  save(2, {.keep = 1});
  failing_folder() = fs::canonical(folder());
  const checkpoint::Saved saved = save(3, {.keep = 1});
  failing_folder().clear();
  EXPECT_NE(saved.warning.find("cannot make the folder durable"), std::string::npos) << saved.warning;
  EXPECT_NE(saved.warning.find("this checkpoint is written"), std::string::npos) << saved.warning;
  EXPECT_EQ(saved.warning.find("removed while"), std::string::npos) << saved.warning;
  EXPECT_EQ(steps(), (Steps{3, 2}));
  EXPECT_EQ(save(4, {.keep = 1}).warning, "");
  EXPECT_EQ(steps(), (Steps{4}));
}

TEST_F(CheckpointRetention, TheBestStay) {
  const std::vector<double> losses{5, 2, 4, 3, 6, 1};
  const auto save_with = [&](std::int64_t step, nlohmann::json metadata, const std::string& data = "") {
    Shards shards = filled(place_, DType::f32, step);
    metadata["step"] = step;
    checkpoint::save(folder(), step, place_, shards.states(), metadata,
                     {.keep = 1, .keep_best = 2, .validation_of = data});
  };
  for (std::int64_t step = 1; step <= 5; ++step)
    save_with(step, {{checkpoint::validation_loss_key, losses[static_cast<std::size_t>(step - 1)]}});
  EXPECT_EQ(steps(), (Steps{5, 4, 2}));
  save_with(6, {});
  EXPECT_EQ(steps(), (Steps{6, 4, 2})) << "without a loss it is the newest, and no more";
  save_with(7, {{checkpoint::validation_loss_key, 3}});
  EXPECT_EQ(steps(), (Steps{7, 2})) << "of equal ones the newest";
  save_with(8, {{checkpoint::validation_loss_key, 1}});
  EXPECT_EQ(steps(), (Steps{8, 2}));
  save_with(9, {{checkpoint::validation_loss_key, 0.5}, {checkpoint::validation_of_key, "others"}});
  EXPECT_EQ(checkpoint::best(folder(), {}), folder() / "step_9");
  EXPECT_EQ(checkpoint::best(folder(), {.damaged = {9}}), folder() / "step_8");
  EXPECT_EQ(checkpoint::best(folder(), {.validation_of = "these"}), folder() / "step_8");
  save_with(10, {}, "these");
  EXPECT_EQ(steps(), (Steps{10, 8})) << "a loss over other data is none";
  std::filesystem::remove_all(folder() / "step_8");
  save_with(11, {{checkpoint::validation_loss_key, 0.7}, {checkpoint::validation_of_key, "these"}}, "these");
  save_with(12, {}, "new");
  EXPECT_EQ(steps(), (Steps{12, 11})) << "it stays until one has a loss over the new data";
  save_with(13, {{checkpoint::validation_loss_key, 3}, {checkpoint::validation_of_key, "new"}}, "new");
  EXPECT_EQ(steps(), (Steps{13}));
}

TEST_F(CheckpointRetention, DamagedOnesStayAndDoNotCount) {
  for (const std::int64_t step : {1, 2, 3, 4}) save(step);
  damage(3);
  damage(4);
  save(5, {.keep = 2, .damaged = {3, 4}});
  EXPECT_EQ(steps(), (Steps{5, 4, 3, 2}));
  save(4, {.keep = 2, .damaged = {3, 4}});
  EXPECT_NO_THROW(checkpoint::require_sound(folder() / "step_4")) << "its step is saved anew";
}

/// Before the new one is there. A disk may have forgotten what it was given.
TEST_F(CheckpointRetention, TheLastSoundOneIsNotRemovedToMakeRoom) {
  for (const std::int64_t step : {1, 2, 3}) save(step);
  damage(3);
  checkpoint::prepare_folder(folder(), 4, {.keep = 1});
  EXPECT_EQ(steps(), (Steps{3, 2, 1}));
  checkpoint::prepare_folder(folder(), 4, {.keep = 2});
  EXPECT_EQ(steps(), (Steps{3, 2})) << "one that stays is sound";
}

TEST_F(CheckpointRetention, OfOneThatCannotBeWrittenNothingIs) {
  const fs::path& at = folder();
  if (::mount("ztrain-test", at.c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "cannot mount a small tmpfs (not root?): a full disk is NOT checked";
  std::string error;
  bool written = false;
  try {
    Shards shards = filled(place_, DType::f32);
    const auto progress = [&](std::int64_t, std::int64_t) { written = true; };
    save(1);
    std::ofstream(at / "ballast") << std::string(600000, 'x');
    checkpoint::save(at, 2, place_, shards.states(), {}, {}, progress);
  } catch (const checkpoint::NotSaved& e) {
    error = e.what();
  }
  EXPECT_TRUE(contains(error, "step_2.tmp: No space left on device: a checkpoint takes ")) << error;
  EXPECT_FALSE(written) << "the files are not begun";
  EXPECT_FALSE(fs::exists(at / "step_2.tmp"));
  EXPECT_EQ(steps(), Steps{1});
  ::umount(at.c_str());
}

TEST_F(CheckpointRetention, WhatOthersHoldIsNoFailureOfADisk) {
  const auto hold = [] { fail("another run is writing there"); };
  try {
    save(1, {.hold = hold});
    ADD_FAILURE() << "saved";
  } catch (const checkpoint::NotSaved& e) {
    ADD_FAILURE() << e.what();
  } catch (const Error& e) {
    EXPECT_TRUE(contains(e.what(), "another run is writing there")) << e.what();
  }
}

}  // namespace
}  // namespace ztrain::checkpoint_retention_test
