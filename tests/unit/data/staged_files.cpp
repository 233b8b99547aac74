// Tests copies of token files on a node's own drive.
#include "data/tokens/staged_files.hpp"

#include <chrono>
#include <iterator>

#include "tests/unit/data/data_files.hpp"

namespace ztrain::data::staged_files_test {
namespace {

namespace fs = std::filesystem;

class Staged : public Data {
 protected:
  /// Copies all at once; returns the copies' totals.
  FileCopies copy(const std::vector<std::string>& files) const {
    FileCopies copies(files, at("drive"));
    EXPECT_TRUE(copies.work(60));
    EXPECT_EQ(copies.done(), copies.bytes());
    return copies;
  }
  std::string bytes_of(const std::string& path) const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(Staged, FilesAreCopiedOnce) {
  fs::create_directories(at("other"));
  const std::vector<std::string> files{write("a.txt", "some text"), write("other/a.txt", "another"),
                                       write("empty.txt", "")};
  EXPECT_EQ(copy_or_itself(files[0], at("drive")), files[0]);
  EXPECT_EQ(copy(files).bytes(), 16);
  for (const std::string& file : files) {
    const std::string copied = copy_or_itself(file, at("drive"));
    EXPECT_EQ(copied, copy_of(file, at("drive")));
    EXPECT_EQ(bytes_of(copied), bytes_of(file));
    EXPECT_EQ(fs::path(copied).filename(), fs::path(file).filename());
  }
  EXPECT_NE(copy_of(files[0], at("drive")), copy_of(files[1], at("drive")));
  EXPECT_EQ(copy_or_itself(files[0], ""), files[0]);
  const FileCopies again = copy(files);
  EXPECT_EQ(again.bytes(), 0);
  EXPECT_EQ(again.found(), 16);
}

TEST_F(Staged, AnotherFileOfTheNameIsCopiedAgain) {
  const std::string file = write("a.txt", "some text");
  copy({file});
  write("a.txt", "some more text");
  EXPECT_EQ(copy_or_itself(file, at("drive")), file);
  EXPECT_EQ(copy({file}).bytes(), 14);
  write("a.txt", "of as many bts");
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::hours(1));
  EXPECT_EQ(copy({file}).bytes(), 14);
  EXPECT_EQ(bytes_of(copy_of(file, at("drive"))), "of as many bts");
}

TEST_F(Staged, CopiesAreWholeOnDrivesThatCutTimes) {
  using std::chrono::duration_cast, std::chrono::milliseconds, std::chrono::seconds;
  const std::string file = write("a.txt", "some text"), copied = copy_of(file, at("drive"));
  copy({file});
  const fs::file_time_type second(duration_cast<seconds>(fs::last_write_time(file).time_since_epoch()));
  fs::last_write_time(file, second + milliseconds(1300));
  fs::last_write_time(copied, second);  // as FAT does
  EXPECT_EQ(copy_or_itself(file, at("drive")), copied);
  fs::last_write_time(copied, second + milliseconds(1200));
  EXPECT_EQ(copy_or_itself(file, at("drive")), file) << "no whole second";
  fs::last_write_time(copied, second - seconds(1));
  EXPECT_EQ(copy_or_itself(file, at("drive")), file) << "2.3 s before";
}

TEST_F(Staged, IndicesGoWithTheirTokens) {
  const std::string tokens = write("a.bin", "tokens"), index = write("a.idx", "index");
  EXPECT_EQ(copy({tokens, index}).bytes(), 11);
  EXPECT_EQ(bytes_of(fs::path(copy_of(tokens, at("drive"))).replace_extension(".idx")), "index");
}

TEST_F(Staged, CopiesThatAreLeftUnfinishedAreRemoved) {
  const std::string file = write("a.txt", "");
  fs::resize_file(file, 64 << 20);
  {
    FileCopies copies({file}, at("drive"));
    EXPECT_FALSE(copies.work(1e-6));
  }
  for (const auto& entry : fs::recursive_directory_iterator(at("drive")))
    EXPECT_FALSE(entry.is_regular_file()) << entry.path();
  EXPECT_EQ(copy_or_itself(file, at("drive")), file);
}

TEST_F(Staged, WhatCannotBeCopiedNamesTheKey) {
  const std::string file = write("a.txt", "");
  std::error_code sparse;
  fs::resize_file(file, std::uintmax_t{1} << 43, sparse);
  if (!sparse) {
    const std::string refused = error_of([&] { copy({file}); });
    EXPECT_EQ(refused.find("data.stage: the files take 8.00 TiB and '"), 0u) << refused;
  }
  write("file", "");
  EXPECT_EQ(
      error_of([&] { FileCopies({file}, at("file/drive")); }).find("data.stage: cannot create the folder"),
      0u);
}

}  // namespace
}  // namespace ztrain::data::staged_files_test
