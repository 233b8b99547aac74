// What disks do: short reads and writes, errors, bytes that change, no room, folders that are gone.

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>

#include "memory/nvme_store.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/nvme.hpp"

namespace ztrain::nvme_faults_test {

using namespace memory;
using namespace test;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void run(NvmeStore::Transfer& transfer) {
  transfer.start();
  transfer.wait();
}

class NvmeFaults : public testing::TestWithParam<NvmeWay> {
 protected:
  static constexpr std::int64_t bytes = 30 * 8192 + 5;

  void SetUp() override {
    const NvmeStore store(nvme_options(folders), 4096, planted_system(GetParam()));
    if (GetParam() == NvmeWay::ring && store.description().rfind("io_uring", 0) != 0)
      GTEST_SKIP() << "io_uring may not be used: " << store.description();
    fill_bytes(out.get(), bytes, 1);
  }
  NvmeStore make(bool checksums = false) { return {nvme_options(folders, checksums), bytes, system}; }
  bool same() const { return std::memcmp(out.get(), in.get(), bytes) == 0; }

  const NvmeFolders folders{2};
  const std::shared_ptr<PlantedSystem> system = planted_system(GetParam());
  const NvmePages out = nvme_pages(bytes), in = nvme_pages(bytes);
};

TEST_P(NvmeFaults, ShortReadsAndWritesAreContinued) {
  NvmeStore store = make(true);
  const auto write = store.write(0, out.get(), bytes), read = store.read(0, in.get(), bytes);
  // Half of what is wanted is asked for; and of whole blocks the system then says that a part of a page was
  // not moved.
  system->asks = [](bool, std::int64_t, std::int64_t n) { return n > 4096 ? n / 8192 * 4096 : n; };
  run(*write);
  run(*read);
  EXPECT_TRUE(same());
  EXPECT_GE(system->asked, 2 * 2 * 30);
  system->asks = nullptr;
  system->answers = [](bool, std::int64_t, std::int64_t n) { return n > 4096 ? n - 100 : n; };
  fill_bytes(out.get(), bytes, 2);
  run(*write);
  run(*read);
  EXPECT_TRUE(same());
}

TEST_P(NvmeFaults, InterruptedRequestsAreAskedForAgain) {
  NvmeStore store = make();
  std::atomic<int> answers{0};
  system->answers = [&](bool, std::int64_t, std::int64_t n) -> std::int64_t {
    const int turn = ++answers % 3;
    return turn == 0 ? n : turn == 1 ? -EINTR : -EAGAIN;
  };
  run(*store.write(0, out.get(), bytes));
  run(*store.read(0, in.get(), bytes));
  EXPECT_TRUE(same());
  EXPECT_GE(system->asked, 3 * 2 * 31);
}

TEST_P(NvmeFaults, WhatNeverMovesIsAnErrorAndNotForEver) {
  NvmeStore store = make();
  system->answers = [](bool, std::int64_t, std::int64_t) { return std::int64_t{0}; };
  EXPECT_TRUE(has(error_of([&] { run(*store.write(0, out.get(), bytes)); }), "Input/output error"));
  system->answers = [](bool, std::int64_t, std::int64_t) { return std::int64_t{-EAGAIN}; };
  EXPECT_TRUE(has(error_of([&] { run(*store.read(0, in.get(), bytes)); }), std::strerror(EAGAIN)));
}

TEST_P(NvmeFaults, ErrorsNameFolderAndByte) {
  NvmeStore store = make();
  const auto write = store.write(0, out.get(), bytes), read = store.read(0, in.get(), bytes);
  run(*write);
  system->answers = [](bool writes, std::int64_t offset, std::int64_t n) -> std::int64_t {
    return offset == 15 * 8192 ? (writes ? -ENOSPC : -EIO) : n;
  };
  const std::string of_read = error_of([&] { run(*read); });
  // Block 30 of the store, its last page, is at that byte of the first folder's file.
  EXPECT_EQ(of_read, "offload.nvme_path: cannot read 4096 bytes at byte 122880 of the file in '" +
                         folders[0].string() + "': Input/output error");
  write->start();
  const std::string of_write = error_of([&] {
    while (!write->test()) {
    }
  });
  EXPECT_EQ(of_write, "offload.nvme_path: cannot write 4096 bytes at byte 122880 of the file in '" +
                          folders[0].string() + "': No space left on device");
  // Once the reason is gone both go on.
  system->answers = nullptr;
  fill_bytes(out.get(), bytes, 3);
  run(*write);
  run(*read);
  EXPECT_TRUE(same());
}

TEST_P(NvmeFaults, AFailureIsOneTransfersAlone) {
  NvmeStore store = make();
  run(*store.write(0, out.get(), bytes));
  system->answers = [](bool, std::int64_t offset, std::int64_t n) { return offset == 0 ? -EIO : n; };
  // The first two blocks, at byte 0 of both files, are of the one transfer; the others are read beside it.
  const auto bad = store.read(0, in.get(), 2 * 8192);
  const auto good = store.read(2 * 8192, in.get() + 2 * 8192, bytes - 2 * 8192);
  bad->start();
  good->start();
  good->wait();
  EXPECT_EQ(std::memcmp(in.get() + 2 * 8192, out.get() + 2 * 8192, bytes - 2 * 8192), 0);
  EXPECT_TRUE(has(error_of([&] { bad->wait(); }), "Input/output error"));
}

TEST_P(NvmeFaults, ChecksumsFindAByteThatChanged) {
  for (const bool checksums : {true, false}) {
    NvmeStore store = make(checksums);
    run(*store.write(0, out.get(), bytes));
    const auto read = store.read(0, in.get(), bytes);
    run(*read);
    ASSERT_TRUE(flip_byte_on_disk(nameless_files(folders[1]).at(0), 3 * 8192 + 17));
    const std::string error = error_of([&] { run(*read); });
    EXPECT_EQ(
        has(error, fmt::format("4096 bytes from byte 24576 of the file in '{}' on are not what was written",
                               folders[1].string())),
        checksums)
        << error;
    // Also where none are kept the byte is another one: it was on the disk.
    EXPECT_FALSE(same());
    run(*store.write(0, out.get(), bytes));
    run(*read);
    EXPECT_TRUE(same());
  }
}

TEST_P(NvmeFaults, ChecksumsAreOfPagesHoweverTheseAreRead) {
  NvmeStore store = make(true);
  run(*store.write(0, out.get(), bytes));
  ASSERT_TRUE(flip_byte_on_disk(nameless_files(folders[1]).at(0), 3 * 8192 + 4096 + 17));
  // That file has the odd blocks, so the byte is in the second page of block 7 of the store.
  constexpr std::int64_t page = 7 * 8192 + 4096;
  for (const std::int64_t before : {0, 4096, 12288}) {
    const std::string error = error_of([&] { run(*store.read(page - before, in.get(), before + 100)); });
    EXPECT_TRUE(has(error, "4096 bytes from byte 28672 of the file in '" + folders[1].string())) << error;
  }
  run(*store.read(0, in.get(), page));
  run(*store.read(page + 4096, in.get(), bytes - page - 4096));
  run(*store.write(page, out.get(), 10));
  run(*store.read(page - 4096, in.get(), 8192));
}

TEST_P(NvmeFaults, ChecksumsAreOfWhatWasWrittenLast) {
  NvmeStore store = make(true);
  const auto whole = store.write(0, out.get(), bytes), part = store.write(4096, out.get(), 5000);
  const auto read = store.read(0, in.get(), bytes), read_part = store.read(4096, in.get() + 4096, 5000);
  run(*whole);
  run(*part);
  run(*read);
  EXPECT_EQ(std::memcmp(in.get() + 4096, out.get(), 5000), 0);
  run(*whole);
  run(*read);
  EXPECT_TRUE(same());
  run(*read_part);
  EXPECT_TRUE(same());
  // A range that failed to be written has none either.
  system->asks = [](bool writes, std::int64_t, std::int64_t n) { return writes ? 0 : n; };
  EXPECT_TRUE(has(error_of([&] { run(*part); }), "cannot write"));
  run(*read_part);
  EXPECT_TRUE(same());
}

INSTANTIATE_TEST_SUITE_P(Ways, NvmeFaults, testing::Values(NvmeWay::ring, NvmeWay::threads),
                         [](const auto& way) { return way.param == NvmeWay::ring ? "ring" : "threads"; });

std::string refusal(const std::filesystem::path& path, std::int64_t bytes = 8192,
                    std::shared_ptr<PlantedSystem> system = planted_system(NvmeWay::ring)) {
  NvmeOptions options;
  options.paths = {path};
  return error_of([&] { const NvmeStore store(options, bytes, std::move(system)); });
}

TEST(NvmeFolder, OfNoUseIsNamed) {
  const NvmeFolders folders(1);
  const auto gone = folders[0] / "gone";
  EXPECT_EQ(refusal(gone),
            "offload.nvme_path: cannot make a file in '" + gone.string() +
                "': No such file or directory: name folders that are there, on drives of this node, "
                "in which this user may write");
  std::ofstream(folders[0] / "file") << "x";
  EXPECT_TRUE(has(refusal(folders[0] / "file"), "Not a directory"));
  EXPECT_TRUE(has(refusal("/proc"), "cannot make a file in '/proc'"));
}

TEST(NvmeFolder, WithoutRoomSaysHowMuchThereIs) {
  const NvmeFolders folders(1);
  // More than any disk has.
  const std::string error = refusal(folders[0], std::int64_t{1} << 60);
  EXPECT_TRUE(has(error, "cannot take 1152921504606846976 bytes")) << error;
  EXPECT_TRUE(has(error, "No space left on device")) << error;
  EXPECT_TRUE(has(error, "are free there: make room, name more folders, or offload less")) << error;
  const auto system = planted_system(NvmeWay::ring);
  system->reserve_error = EDQUOT;
  EXPECT_TRUE(has(refusal(folders[0], 8192, system), "Disk quota exceeded"));
}

TEST(NvmeFolder, MayHaveNeitherDirectIoNorRoomToReserve) {
  const NvmeFolders folders(1);
  const auto system = planted_system(NvmeWay::ring);
  system->direct_error = EINVAL;
  system->reserve_error = EOPNOTSUPP;
  NvmeStore store(nvme_options(folders), 50001, system);
  EXPECT_TRUE(has(store.description(),
                  fmt::format("buffered I/O ('{}' refuses direct I/O: Invalid argument), 1 folder "
                              "('{}' cannot reserve space)",
                              folders[0].string(), folders[0].string())))
      << store.description();
  const NvmePages out = nvme_pages(50001), in = nvme_pages(50001);
  fill_bytes(out.get(), 50001, 1);
  run(*store.write(0, out.get(), 50001));
  run(*store.read(0, in.get(), 50001));
  EXPECT_EQ(std::memcmp(out.get(), in.get(), 50001), 0);
}

/// A file system of its own, where this user may mount one.
class Mounted {
 public:
  Mounted(const std::filesystem::path& at, unsigned long flags, const char* options)
      : at_(at), mounted_(::mount("none", at.c_str(), "tmpfs", flags, options) == 0) {}
  ~Mounted() {
    if (mounted_) ::umount2(at_.c_str(), MNT_DETACH);
  }
  Mounted(const Mounted&) = delete;
  Mounted& operator=(const Mounted&) = delete;
  explicit operator bool() const { return mounted_; }

 private:
  std::filesystem::path at_;
  bool mounted_;
};

TEST(NvmeFolder, OnAFullDiskIsRefused) {
  const NvmeFolders folders(1);
  const Mounted mounted(folders[0], 0, "size=1m");
  if (!mounted) GTEST_SKIP() << "this user may not mount a small file system: " << std::strerror(errno);
  EXPECT_EQ(refusal(folders[0], 1 << 20), "no error");
  const std::string error = refusal(folders[0], 2 << 20);
  EXPECT_TRUE(has(error, "cannot take 2097152 bytes (2.00 MiB)")) << error;
  EXPECT_TRUE(has(error, "1048576 bytes (1.00 MiB) are free there")) << error;
}

TEST(NvmeFolder, ThatIsReadOnlyIsRefused) {
  const NvmeFolders folders(1);
  const Mounted mounted(folders[0], MS_RDONLY, "");
  if (!mounted) GTEST_SKIP() << "this user may not mount a file system: " << std::strerror(errno);
  EXPECT_TRUE(has(refusal(folders[0]), "Read-only file system")) << refusal(folders[0]);
}

}  // namespace
}  // namespace ztrain::nvme_faults_test
