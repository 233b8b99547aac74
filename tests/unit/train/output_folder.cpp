// The folders that a run writes to: who holds them, and what stands in the way.
#include "train/output_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "tests/support/error_of.hpp"

namespace ztrain::output_folder_test {
namespace {

namespace fs = std::filesystem;
using test::error_of;

class OutputFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ztrain-output-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string text_of(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  fs::path folder_;
};

TEST_F(OutputFolder, AHeldFolderIsRefusedAndItsHolderNamed) {
  std::ofstream(folder_ / ".lock") << "process 123456789 on a-node-with-a-longer-name-than-the-next\n";
  const std::string holder = fmt::format("process {} on node7", ::getpid());
  const auto refused = [&] {
    return error_of([&] { train::HeldFolder(folder_, "checkpoint.folder", "node8"); });
  };
  {
    const train::HeldFolder held(folder_, "run.output", "node7");
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(refused(), "checkpoint.folder: another run is writing to '" + folder_.string() + "' (" +
                               holder + "): wait for its end, or give this one another folder");
  }
  EXPECT_EQ(refused(), "no error");
}

TEST_F(OutputFolder, AHeldFolderIsWaitedFor) {
  std::optional<train::HeldFolder> before(std::in_place, folder_, "run.output", "node7");
  EXPECT_NE(error_of([&] { train::hold(folder_, "run.output", "node8", {}); }).find("on node7"),
            std::string::npos);
  std::vector<std::string> told;
  const auto leave = [&](const std::string& why) {
    told.push_back(why);
    before.reset();
  };
  const train::HeldFolder held = train::hold(folder_, "run.output", "node8", {1000, leave});
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("another run is writing"), std::string::npos) << told[0];
}

TEST_F(OutputFolder, WhatSomebodyRemovesIsHeldAgain) {
  const fs::path output = folder_ / "run";
  fs::create_directory(output);
  train::HeldFolder held(output, "run.output", "node7");
  const auto error_of_another = [&] {
    return error_of([&] { train::HeldFolder(output, "run.output", "node8"); });
  };
  for (const fs::path& removed : {output / ".lock", output}) {
    fs::remove_all(removed);
    held.hold_again();
    EXPECT_NE(error_of_another().find("another run is writing"), std::string::npos) << removed;
  }
  fs::remove_all(output / ".lock");
  const train::HeldFolder another(output, "run.output", "node8");
  EXPECT_NE(error_of([&] { held.hold_again(); }).find("on node8"), std::string::npos);
}

TEST_F(OutputFolder, AFolderThatIsRemovedOverAndOverIsHeldAgain) {
  const fs::path output = folder_ / "run";
  fs::create_directory(output);
  train::HeldFolder held(output, "run.output", "node7");
  std::atomic<bool> stop = false;
  std::thread remover([&] {
    // Whenever it is empty, but not so often that nobody else gets to do anything.
    for (std::error_code error; !stop; std::this_thread::sleep_for(std::chrono::microseconds(1)))
      fs::remove(output, error);
  });
  const auto hold_over_and_over = [&] {
    for (int i = 0; i < 2000; ++i) {
      fs::remove(output / ".lock");
      held.hold_again();
    }
  };
  EXPECT_EQ(error_of(hold_over_and_over), "no error");
  stop = true;
  remover.join();
}

/// As a disk that is unmounted leaves the folder on which it was.
TEST_F(OutputFolder, AFolderOnAnotherDiskIsNotHeldAgain) {
  struct stat here {
  }, other{};
  if (::stat(folder_.c_str(), &here) != 0 || ::stat("/dev/shm", &other) != 0 || here.st_dev == other.st_dev)
    GTEST_SKIP() << "/dev/shm is no other disk";
  std::string name = "/dev/shm/ztrain-output-XXXXXX";
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const fs::path disk = folder_ / "disk", output = disk / "deep" / "run";
  fs::create_directory_symlink(name, disk);
  fs::create_directories(output);
  train::HeldFolder held(output, "run.output", "node7");
  fs::remove(disk);
  fs::create_directory(disk);
  for (int i = 0; i < 2; ++i) {
    const std::string error = error_of([&] { held.hold_again(); });
    EXPECT_NE(error.find("run.output: '" + output.string() + "' was on another disk"), std::string::npos)
        << error;
  }
  EXPECT_TRUE(fs::is_empty(disk));
  fs::remove(disk);
  fs::create_directory_symlink(name, disk);
  EXPECT_EQ(error_of([&] { held.hold_again(); }), "no error") << "mounted again";
  fs::remove_all(name);
}

TEST_F(OutputFolder, FilesThatAskForSomethingAreTakenOnce) {
  EXPECT_TRUE(train::take_requests(folder_).empty());
  EXPECT_TRUE(train::take_requests(folder_ / "gone").empty());
  std::ofstream(folder_ / "stop") << "";
  std::ofstream(folder_ / "save") << "text";
  const auto taken = train::take_requests(folder_);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].path, (folder_ / "save").string());
  EXPECT_EQ(taken[0].signal, SIGUSR2);
  EXPECT_EQ(taken[1].path, (folder_ / "stop").string());
  EXPECT_EQ(taken[1].signal, SIGUSR1);
  for (const auto& request : taken) {
    EXPECT_NE(request.owner.find(fmt::format("uid {}", ::geteuid())), std::string::npos) << request.owner;
    EXPECT_EQ(request.why_kept, "");
  }
  EXPECT_TRUE(fs::is_empty(folder_));
  fs::create_directory(folder_ / "save");
  fs::create_symlink(folder_ / "save", folder_ / "stop");
  EXPECT_TRUE(train::take_requests(folder_).empty());
  EXPECT_TRUE(fs::exists(folder_ / "save") && fs::is_symlink(folder_ / "stop"));
}

TEST_F(OutputFolder, SymbolicLinksAreNotWrittenThrough) {
  const fs::path target = folder_ / "target";
  std::ofstream(target) << "precious";
  for (const char* name : {".lock", ".ztrain_write_test", "deck.resolved.toml"})
    fs::create_symlink(target, folder_ / name);
  for (const std::string& error :
       {error_of([&] { train::make_writable(folder_, "run.output"); }),
        error_of([&] { train::HeldFolder(folder_, "run.output", "node7"); }),
        error_of([&] { train::write_text(folder_ / "deck.resolved.toml", "", "run.output"); })})
    EXPECT_NE(error.find("symbolic link"), std::string::npos) << error;
  EXPECT_EQ(text_of(target), "precious");
  fs::create_directory_symlink(folder_ / "nowhere", folder_ / "link");
  const std::string dangling = error_of([&] { train::make_writable(folder_ / "link", "run.output"); });
  EXPECT_TRUE(dangling.ends_with("it is a symbolic link to what is no folder")) << dangling;
}

}  // namespace
}  // namespace ztrain::output_folder_test
