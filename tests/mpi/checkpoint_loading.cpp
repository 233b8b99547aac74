// What is not in the page cache is loaded past it: the same bytes, checked, and nothing is left there. One
// rank.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <deque>
#include <fstream>
#include <thread>

#include "checkpoint/format/format.hpp"
#include "files/posix_file.hpp"
#include "layout/comm_cost.hpp"
#include "memory/provider.hpp"
#include "tests/support/checkpoint_model.hpp"

namespace ztrain::checkpoint_loading_test {
namespace {

using namespace test;
namespace fs = std::filesystem;

/// Bytes that this process has had from a disk.
std::int64_t bytes_from_disk() {
  rusage usage{};
  EXPECT_EQ(::getrusage(RUSAGE_SELF, &usage), 0);
  return usage.ru_inblock * 512;
}

/// lm_head.weight has 6 blocks and a part of one; its pieces begin within pages.
class CheckpointDirect : public testing::Test {
 protected:
  CheckpointDirect() : layout_(awkward_parameters(1, 123457), 3, 1), place_{&layout_, Coordinate({}, 0), 0} {
    Shards shards = filled(place_, DType::f32);
    checkpoint::save(temporary_.path(), 1, place_, shards.states(), {{"step", 1}});
  }
  void SetUp() override {
    if (!PosixFile::open_direct(PosixFile::open_to_read(shard_)))
      GTEST_SKIP() << "the temporary folder has no direct I/O: that way is NOT tested";
    forget();
    if (PosixFile::open_to_read(shard_).is_cached(1 << 20, 1 << 20))
      GTEST_SKIP() << "the system does not forget a file: reading it from the disk is NOT tested";
  }
  /// Takes the shard file out of the page cache.
  void forget() const {
    const int file = ::open(shard_.c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_EQ(::fsync(file), 0);
    EXPECT_EQ(::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), 0);
    ::close(file);
  }
  const checkpoint::PieceRow& largest(const checkpoint::Index& index) const {
    return *std::ranges::max_element(index.pieces, {}, &checkpoint::PieceRow::count);
  }

  TemporaryFolder temporary_;
  Layout layout_;
  Place place_;
  fs::path path_ = temporary_.path() / "step_1", shard_ = path_ / "shard_0000.h5";
};

TEST_F(CheckpointDirect, WhatTheDiskHasDoesNotFillTheCache) {
  for (const bool verify : {true, false}) {
    forget();
    EXPECT_TRUE(filled(place_, DType::f32) == loaded(path_, place_, DType::f32, verify)) << verify;
    const checkpoint::Index index = checkpoint::read_index(path_ / "index.h5");
    const auto& row = largest(index);
    const PosixFile file = PosixFile::open_to_read(shard_);
    int cached = 0;
    for (std::int64_t at = 0; at + checkpoint::checksum_block <= row.bytes();
         at += checkpoint::checksum_block)
      cached += file.is_cached(checkpoint::checksum_block, row.byte_offset + at);
    EXPECT_EQ(cached, 0) << verify;
  }
}

TEST_F(CheckpointDirect, WhatIsInTheCacheIsNotReadAgain) {
  const std::string bytes = [&] {
    std::ifstream file(shard_, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  const std::int64_t before = bytes_from_disk();
  EXPECT_TRUE(filled(place_, DType::f32) == loaded(path_, place_, DType::f32));
  EXPECT_LT(bytes_from_disk() - before, std::ssize(bytes) / 4);
}

TEST_F(CheckpointDirect, PartsOfBlocksComeAsTheyAre) {
  for (int shard = 0; shard < 5; ++shard) {
    const Layout five(awkward_parameters(1, 123457), 3, 5);
    const Place place{&five, Coordinate({}, 0), shard};
    forget();
    EXPECT_TRUE(filled(place, DType::f32) == loaded(path_, place, DType::f32)) << shard;
  }
  forget();
  EXPECT_TRUE(filled(place_, DType::bf16) == loaded(path_, place_, DType::bf16));
}

TEST_F(CheckpointDirect, DamageIsFoundInEachBlock) {
  const checkpoint::Index index = checkpoint::read_index(path_ / "index.h5");
  const auto& row = largest(index);
  for (std::int64_t at = 17; at < row.bytes(); at += checkpoint::checksum_block) {
    std::fstream file(shard_, std::ios::in | std::ios::out | std::ios::binary);
    const auto flip = [&] {
      file.seekg(row.byte_offset + at);
      const int byte = file.get();
      file.seekp(row.byte_offset + at);
      file.put(static_cast<char>(byte ^ 4)).flush();
      forget();
    };
    flip();
    const std::string error = error_of([&] { loaded(path_, place_, DType::f32); });
    EXPECT_TRUE(contains(error, shard_.string()) && contains(error, "checksum") &&
                contains(error, "lm_head.weight"))
        << at << ": " << error;
    flip();
  }
  EXPECT_TRUE(filled(place_, DType::f32) == loaded(path_, place_, DType::f32));
}

/// Memory at addresses where the CPU finds nothing. The caller's thread fills it, a few MiB at a time.
class Elsewhere : public memory::Provider {
 public:
  Elsewhere(std::byte* real, std::int64_t& most) : real_(real), most_(most) {}
  std::byte* begin() const { return begin_; }

  std::byte* allocate(const std::string&, std::int64_t) override { return nullptr; }
  void release(std::byte*, std::int64_t) noexcept override {}
  bool host_accessible() const override { return false; }
  void fill(void* data, int value, std::int64_t bytes) override {
    std::memset(at(data), value, static_cast<std::size_t>(bytes));
  }
  void write(void* data, const void* host, std::int64_t bytes) override {
    EXPECT_EQ(std::this_thread::get_id(), self_);
    most_ = std::max(most_, bytes);
    std::memcpy(at(data), host, static_cast<std::size_t>(bytes));
  }
  void read(void* host, const void* data, std::int64_t bytes) const override {
    std::memcpy(host, at(data), static_cast<std::size_t>(bytes));
  }
  memory::MachineMemory limits() const override { return {}; }
  std::int64_t resident_bytes(const std::byte*, std::int64_t bytes) const override { return bytes; }

 private:
  std::byte* at(const void* data) const { return real_ + (static_cast<const std::byte*>(data) - begin_); }

  std::byte* const begin_ = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 12);
  std::byte* real_;
  std::int64_t& most_;
  std::thread::id self_ = std::this_thread::get_id();
};

/// The same shards where the CPU does not reach them; most: of the bytes that came at once.
Shards loaded_elsewhere(const fs::path& path, const Place& place, DType model, std::int64_t& most) {
  Shards shards(place, model);
  shards.clear(std::byte{0xee});
  std::deque<Elsewhere> memories;
  for (StateShard& shard : shards.states()) {
    shard.memory = &memories.emplace_back(shard.data, most);
    shard.data = memories.back().begin();
  }
  checkpoint::load(path, place, shards.states(), {});
  return shards;
}

TEST(CheckpointLoading, FillsWhatTheCpuDoesNotReachAFewMebibytesAtATime) {
  const TemporaryFolder temporary;
  const std::int64_t head = 456789;  // 23 MB
  const Layout one(awkward_parameters(1, head), 3, 1);
  Shards saved = filled({&one, Coordinate({}, 0), 0}, DType::f32);
  checkpoint::save(temporary.path(), 1, {&one, Coordinate({}, 0), 0}, saved.states(), {{"step", 1}});
  for (const int count : {1, 3})
    for (int shard = 0; shard < count; ++shard)
      for (const DType model : {DType::f32, DType::bf16}) {
        const Layout cut(awkward_parameters(1, head), 3, count);
        const Place place{&cut, Coordinate({}, 0), shard};
        std::int64_t most = 0;
        EXPECT_TRUE(filled(place, model) == loaded_elsewhere(temporary.path() / "step_1", place, model, most))
            << shard << " of " << count;
        EXPECT_GT(most, checkpoint_part);
        EXPECT_LE(most, 2 * checkpoint_part);
      }
}

}  // namespace
}  // namespace ztrain::checkpoint_loading_test
