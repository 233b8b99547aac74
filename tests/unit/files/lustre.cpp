// Tests stripes and quotas, with a program in the place of `lfs` and a folder that passes for one on Lustre.
#include "files/lustre.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tests/support/error_of.hpp"

namespace ztrain::lustre_test {
namespace {

namespace fs = std::filesystem;

class Lustre : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ztrain-lustre-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    ::setenv("PATH", folder_.c_str(), 1);
  }
  void TearDown() override {
    ::setenv("PATH", path_.c_str(), 1);
    fs::remove_all(folder_);
  }

  /// Puts a program there that writes down its words, says `answer`, and ends with `status`.
  void put_lfs(const std::string& answer, int status = 0) const {
    std::ofstream(folder_ / "lfs") << "#!/bin/sh\necho \"$@\" >>" << folder_.string() << "/words\n"
                                   << answer << "\nexit " << status << "\n";
    ::chmod((folder_ / "lfs").c_str(), 0700);
  }
  std::string words() const {
    std::ifstream file(folder_ / "words");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const std::string path_ = std::getenv("PATH");
  fs::path folder_;
};

TEST_F(Lustre, OtherFileSystemsAreLeftAlone) {
  put_lfs("");
  EXPECT_FALSE(is_lustre("/proc"));
  EXPECT_FALSE(is_lustre(folder_ / "gone"));
  EXPECT_EQ(spread_files_of(folder_, false), "");
  EXPECT_EQ(words(), "");
}

TEST_F(Lustre, FilesOfAFolderTakeMoreTargetsAsTheyGrow) {
  EXPECT_EQ(spread_files_of(folder_, true).find(folder_.string() + " is on Lustre, and `lfs` is not in PATH"),
            0u);
  put_lfs("");
  EXPECT_EQ(spread_files_of("a folder", true),
            "a folder is on Lustre: a file in it has 1 stripe up to 64 MiB, 4 up to 4 GiB, and 8 beyond");
  EXPECT_EQ(words(), "setstripe -E 64M -c 1 -E 4G -c 4 -E -1 -c 8 a folder\n");
  put_lfs("echo 'error: setstripe: cannot\nset' >&2", 1);
  EXPECT_NE(spread_files_of(folder_, true).find("`lfs setstripe`: error: setstripe: cannot set"),
            std::string::npos);
}

TEST_F(Lustre, AQuotaLeavesItsHardLimitLessWhatIsUsed) {
  const std::string rest = " - 12 0 0 -\n";
  EXPECT_EQ(left_of_lfs_quota("/scratch 1000 0 3000" + rest), 2000 * 1024);
  EXPECT_EQ(left_of_lfs_quota("/a/long/name\n      [4000]* 2000 3000" + rest), 0);
  EXPECT_EQ(left_of_lfs_quota("/scratch 1000 3000 0" + rest), std::nullopt);
  for (const char* text : {"", "/scratch 10", "/scratch - - -", "lfs: cannot find 9"})
    EXPECT_EQ(left_of_lfs_quota(text), std::nullopt) << text;
}

TEST_F(Lustre, TheTightestQuotaCounts) {
  put_lfs("case $3 in -u) echo '/scratch 10 0 90 - 1 0 0 -' ;; *) echo '/scratch 10 0 30 - 1 0 0 -' ;; esac");
  const auto left = quota_left(folder_, true);
  ASSERT_TRUE(left);
  EXPECT_EQ(left->bytes, 20 * 1024);
  EXPECT_EQ(left->whose, "group " + std::to_string(::getegid()));
  const std::string user = std::to_string(::geteuid());
  EXPECT_EQ(words().find("quota -q -u " + user + " " + folder_.string() + "\n"), 0u) << words();
  put_lfs("echo '/scratch 10 0 30 - 1 0 0 -'", 1);
  EXPECT_FALSE(quota_left(folder_, true));
}

TEST_F(Lustre, WhatTakesMoreThanAQuotaLeavesIsRefused) {
  const auto refused = [&](std::int64_t bytes, std::optional<QuotaLeft> left) {
    return test::error_of([&] { require_quota("a", bytes, left, "a checkpoint", "set b"); });
  };
  EXPECT_EQ(refused(1 << 20, std::nullopt), "no error");
  EXPECT_EQ(refused(1 << 20, QuotaLeft{1 << 20, "user 7"}), "no error");
  EXPECT_EQ(
      refused(1 << 20, QuotaLeft{1 << 19, "user 7"}),
      "a: Disk quota exceeded: a checkpoint takes 1.00 MiB and the quota of user 7 leaves 512.00 KiB: remove "
      "files, ask for more, or set b");
}

/// The kernel answers for /proc, which has no quotas.
TEST_F(Lustre, NoQuotaIsNoLimit) {
  EXPECT_FALSE(quota_left("/proc", false));
  EXPECT_FALSE(quota_left(folder_ / "gone", false));
}

}  // namespace
}  // namespace ztrain::lustre_test
