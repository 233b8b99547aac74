// What is written to the NVMe store comes back, on both ways, from one folder or several.

#include "memory/nvme_store.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "base/shape.hpp"
#include "telemetry/allocation_count.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/nvme.hpp"

namespace ztrain::nvme_store_test {

using namespace memory;
using namespace test;

namespace {

class NvmeStoreTest : public testing::TestWithParam<NvmeWay> {
 protected:
  void SetUp() override {
    const NvmeFolders folder(1);
    const NvmeStore store(nvme_options(folder), 4096, planted_system(GetParam()));
    const bool ring = store.description().rfind("io_uring", 0) == 0;
    if (GetParam() == NvmeWay::ring && !ring)
      GTEST_SKIP() << "io_uring may not be used: " << store.description();
    ASSERT_EQ(ring, GetParam() == NvmeWay::ring) << store.description();
  }
  std::unique_ptr<NvmeStore> make(const NvmeFolders& folders, std::int64_t bytes, bool checksums = false) {
    return std::make_unique<NvmeStore>(nvme_options(folders, checksums), bytes, planted_system(GetParam()));
  }
};

void run(NvmeStore::Transfer& transfer) {
  transfer.start();
  transfer.wait();
}

TEST_P(NvmeStoreTest, BytesOfAnyNumberComeBackFromAnyNumberOfFolders) {
  const std::vector<std::int64_t> sizes{1, 4095, 4096, 4097, 0, 8192, 12289, 40960, 100001, 7};
  for (const int count : {1, 2, 3}) {
    const NvmeFolders folders(count);
    std::int64_t total = 0;
    for (const std::int64_t size : sizes) total += round_up(size, 4096);
    const auto store = make(folders, total, count == 2);
    const NvmePages written = nvme_pages(total), back = nvme_pages(total);
    fill_bytes(written.get(), total, count);
    std::memset(back.get(), 0x5A, static_cast<std::size_t>(total));
    std::vector<std::unique_ptr<NvmeStore::Transfer>> writes, reads;
    std::int64_t at = 0;
    for (const std::int64_t size : sizes) {
      writes.push_back(store->write(at, written.get() + at, size));
      reads.push_back(store->read(at, back.get() + at, size));
      at += round_up(size, 4096);
    }
    for (const auto& write : writes) write->start();
    for (const auto& write : writes) write->wait();
    for (const auto& read : reads) read->start();
    for (const auto& read : reads)
      while (!read->test()) {
      }
    at = 0;
    for (const std::int64_t size : sizes) {
      EXPECT_EQ(std::memcmp(written.get() + at, back.get() + at, static_cast<std::size_t>(size)), 0) << size;
      // The memory needs no room behind its last byte.
      for (std::int64_t i = size; i < round_up(size, 4096); ++i)
        ASSERT_EQ(back[static_cast<std::size_t>(at + i)], std::byte{0x5A}) << size << " bytes, byte " << i;
      at += round_up(size, 4096);
    }
  }
}

TEST_P(NvmeStoreTest, ReadsGoOnBesideWritesAndTransfersStartAgain) {
  const NvmeFolders folders(2);
  constexpr std::int64_t half = 20 * 8192, rounds = 12;
  const auto store = make(folders, 2 * half, true);
  const NvmePages out = nvme_pages(half), in = nvme_pages(half), expected = nvme_pages(half);
  // In turns: one half of the store is written, while the other is read as it was written before.
  const std::unique_ptr<NvmeStore::Transfer> writes[] = {store->write(0, out.get(), half),
                                                         store->write(half, out.get(), half)};
  const std::unique_ptr<NvmeStore::Transfer> reads[] = {store->read(0, in.get(), half),
                                                        store->read(half, in.get(), half)};
  fill_bytes(out.get(), half, 0);
  run(*writes[0]);
  for (int round = 1; round < rounds; ++round) {
    std::memcpy(expected.get(), out.get(), half);
    fill_bytes(out.get(), half, round);
    writes[round % 2]->start();
    reads[(round + 1) % 2]->start();
    reads[(round + 1) % 2]->wait();
    writes[round % 2]->wait();
    ASSERT_EQ(std::memcmp(in.get(), expected.get(), half), 0) << "round " << round;
  }
}

TEST_P(NvmeStoreTest, BlocksGoToEachFolderInTurns) {
  const NvmeFolders folders(3);
  constexpr std::int64_t blocks = 8, bytes = blocks * 8192 - 4096;
  const auto store = make(folders, bytes);
  const NvmePages written = nvme_pages(bytes);
  for (std::int64_t b = 0; b < blocks; ++b)
    std::memset(written.get() + b * 8192, static_cast<int>(b + 1), b + 1 == blocks ? 4096 : 8192);
  run(*store->write(0, written.get(), bytes));
  for (std::size_t f = 0; f < 3; ++f) {
    ASSERT_EQ(nameless_files(folders[f]).size(), 1u);
    const int file = nameless_files(folders[f])[0];
    std::int64_t in_file = 0;
    for (std::int64_t b = static_cast<std::int64_t>(f); b < blocks; b += 3, in_file += 8192)
      EXPECT_EQ(byte_on_disk(file, in_file + 4095), static_cast<std::byte>(b + 1)) << f << " " << b;
    // The room of each file is taken, and not more.
    const std::int64_t size = (f == 0 ? 3 : f == 1 ? 3 : 2) * 8192 - (f == 1 ? 4096 : 0);
    EXPECT_EQ(::lseek(file, 0, SEEK_END), size) << f;
  }
}

TEST_P(NvmeStoreTest, NothingHasANameAndNothingStaysOpen) {
  const NvmeFolders folders(2);
  {
    const auto store = make(folders, 100000);
    for (const auto& path : folders.paths()) {
      EXPECT_TRUE(std::filesystem::is_empty(path));
      EXPECT_EQ(nameless_files(path).size(), 1u);
    }
  }
  for (const auto& path : folders.paths()) EXPECT_TRUE(nameless_files(path).empty());
}

TEST_P(NvmeStoreTest, StartedTransfersAllocateNothing) {
  const NvmeFolders folders(1);
  const auto store = make(folders, 100000, true);
  const NvmePages memory = nvme_pages(100000);
  const auto write = store->write(0, memory.get(), 99999), read = store->read(0, memory.get(), 99999);
  const telemetry::AllocationCount count;
  for (int round = 0; round < 3; ++round) {
    run(*write);
    run(*read);
  }
  EXPECT_EQ(count.calls(), 0);
}

TEST_P(NvmeStoreTest, TransfersOutliveNothingThatTheyWorkOn) {
  const NvmeFolders folders(1);
  const auto system = planted_system(GetParam());
  constexpr std::int64_t bytes = 400 * 8192;
  auto store = std::make_unique<NvmeStore>(nvme_options(folders), bytes, system);
  NvmePages out = nvme_pages(bytes), in = nvme_pages(bytes);
  auto one = store->write(0, out.get(), bytes), other = store->read(0, in.get(), bytes);
  one->start();
  other->start();
  store.reset();
  one.reset();
  other.reset();
  // Whatever was asked for has been answered, and nothing is asked for any more.
  out.reset();
  in.reset();
  EXPECT_EQ(system->asked, system->answered);
  EXPECT_TRUE(nameless_files(folders[0]).empty());
}

TEST_P(NvmeStoreTest, RegisteredMemoryIsReadAndWrittenAcrossItsBorders) {
  const NvmeFolders folders(1);
  constexpr std::int64_t bytes = 16 * 4096;
  const auto store = make(folders, bytes, true);
  const NvmePages out = nvme_pages(bytes), in = nvme_pages(bytes);
  store->register_memory(out.get() + 4096, 5 * 4096);
  store->register_memory(in.get(), bytes);
  EXPECT_EQ(store->description().find("fixed buffers"), std::string::npos) << store->description();
  fill_bytes(out.get(), bytes, 1);
  run(*store->write(0, out.get(), bytes));
  run(*store->read(0, in.get(), bytes));
  EXPECT_EQ(std::memcmp(in.get(), out.get(), bytes), 0);
  if (GetParam() == NvmeWay::threads) return;
  // Memory that the system cannot lock: what was registered before stays so.
  void* const closed = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  store->register_memory(closed, 4096);
  EXPECT_NE(store->description().find("no fixed buffers: Bad address"), std::string::npos)
      << store->description();
  ::munmap(closed, 4096);
  fill_bytes(out.get(), bytes, 2);
  run(*store->write(0, out.get(), bytes));
  run(*store->read(0, in.get(), bytes));
  EXPECT_EQ(std::memcmp(in.get(), out.get(), bytes), 0);
}

TEST_P(NvmeStoreTest, MeasuresItsSpeed) {
  const NvmeFolders folders(1);
  const auto store = make(folders, 50000, true);
  const NvmeSpeed speed = store->measure();
  EXPECT_GT(speed.write, 0);
  EXPECT_GT(speed.read, 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, NvmeStoreTest, testing::Values(NvmeWay::ring, NvmeWay::threads),
                         [](const auto& way) { return way.param == NvmeWay::ring ? "ring" : "threads"; });

TEST(NvmeStore, SaysHowItWorks) {
  const NvmeFolders folders(2);
  const auto system = planted_system(NvmeWay::threads);
  EXPECT_EQ(
      NvmeStore(nvme_options(folders, true), 4096, system).description(),
      "threads (no io_uring: Operation not permitted), direct I/O, 2 folders, depth 3 x 8.00 KiB, checksums");
}

TEST(NvmeStore, WarnsOfSlowDrives) {
  EXPECT_EQ(nvme_warning({1e9, 2e9}), "");
  EXPECT_EQ(nvme_warning({1e8, 1e8}), "");
  const std::string warning = nvme_warning({2e9, 5e7});
  EXPECT_NE(warning.find("offload.nvme_path"), std::string::npos) << warning;
  EXPECT_NE(warning.find("50.00 MB/s"), std::string::npos) << warning;
}

TEST(NvmeStore, RefusesWhatIsNotOnPagesOrNotInIt) {
  const NvmeFolders folders(1);
  NvmeStore store(nvme_options(folders), 8192);
  const NvmePages memory = nvme_pages(16384);
  EXPECT_NE(error_of([&] { store.read(100, memory.get(), 1); }).find("not on pages"), std::string::npos);
  EXPECT_NE(error_of([&] { store.write(0, memory.get() + 8, 1); }).find("not on pages"), std::string::npos);
  EXPECT_NE(error_of([&] { store.read(4096, memory.get(), 4097); }).find("outside the NVMe store"),
            std::string::npos);
  const auto write = store.write(0, memory.get(), 8192);
  write->start();
  EXPECT_NE(error_of([&] { write->start(); }).find("started again"), std::string::npos);
  write->wait();
}

}  // namespace
}  // namespace ztrain::nvme_store_test
