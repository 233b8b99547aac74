// How pieces come into a shard file: each byte at its place, wherever pages begin.

#include "checkpoint/pieces.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/shape.hpp"
#include "files/posix_file.hpp"
#include "tests/support/error_of.hpp"

namespace ztrain::checkpoint::write_pieces_test {
namespace {

namespace fs = std::filesystem;

/// Memory that is only reached through it: an address is that of the byte before.
class Elsewhere final : public memory::Provider {
 public:
  std::byte* allocate(const std::string&, std::int64_t) override { return nullptr; }
  void release(std::byte*, std::int64_t) noexcept override {}
  bool host_accessible() const override { return false; }
  void fill(void*, int, std::int64_t) override {}
  void write(void*, const void*, std::int64_t) override {}
  void read(void* host, const void* data, std::int64_t bytes) const override {
    EXPECT_EQ(std::this_thread::get_id(), owner_) << "read by a thread that does not have the device";
    std::memcpy(host, static_cast<const std::byte*>(data) + 1, static_cast<std::size_t>(bytes));
  }
  memory::MachineMemory limits() const override { return {}; }
  std::int64_t resident_bytes(const std::byte*, std::int64_t) const override { return 0; }

 private:
  std::thread::id owner_ = std::this_thread::get_id();
};

/// The host's memory, of which is counted what is held at a time.
class Counted final : public memory::Provider {
 public:
  std::byte* allocate(const std::string& name, std::int64_t bytes) override {
    std::byte* const data = memory::host_memory().allocate(name, bytes);
    most_ = std::max(most_, held_ += bytes);
    return data;
  }
  void release(std::byte* data, std::int64_t bytes) noexcept override {
    memory::host_memory().release(data, bytes);
    held_ -= bytes;
  }
  std::int64_t most() const { return most_; }
  std::int64_t held() const { return held_; }

 private:
  std::int64_t held_ = 0, most_ = 0;
};

class WritePieces : public testing::Test {
 protected:
  /// Pieces of these sizes, one behind the other with `gap` bytes between them, from `begin` of the file on.
  void make(std::int64_t begin, std::int64_t gap, const std::vector<std::int64_t>& sizes) {
    std::int64_t offset = begin;
    for (const std::int64_t bytes : sizes) {
      PieceRow row;
      row.dtype = static_cast<std::int64_t>(DType::u8);
      row.count = bytes;
      row.byte_offset = offset;
      pieces_.push_back({row, nullptr});
      offset += bytes + gap;
    }
    contents_.assign(static_cast<std::size_t>(offset + 777), std::byte{0xA5});
    memory_.resize(contents_.size());
    for (OwnPiece& piece : pieces_) {
      std::byte* const in_file = contents_.data() + piece.row.byte_offset;
      for (std::int64_t i = 0; i < piece.row.count; i += std::ssize(noise_))
        std::memcpy(in_file + i, noise_.data(),
                    static_cast<std::size_t>(std::min(std::ssize(noise_), piece.row.count - i)));
      // At another place of a page than in the file.
      std::byte* const held = memory_.data() + piece.row.byte_offset - begin + 8;
      std::memcpy(held, in_file, static_cast<std::size_t>(piece.row.count));
      piece.data = held;
    }
  }

  void write(const fs::path& folder, const WriteOptions& options) {
    path_ = folder / fs::path("ztrain_write_pieces." + std::to_string(::getpid()));
    std::ofstream(path_, std::ios::binary) << std::string(contents_.size(), '\xA5');
    std::int64_t last = 0, total = 0;
    const auto sums = write_pieces(
        path_, pieces_,
        [&](std::int64_t done, std::int64_t all) {
          EXPECT_EQ(std::this_thread::get_id(), self_);
          EXPECT_GE(done, last);
          last = done;
          total = all;
        },
        options);
    EXPECT_EQ(last, total);
    expect_written();
    expect_checksums(sums);
    fs::remove(path_);
  }

  void expect_written() const {
    const PosixFile file = PosixFile::open_to_read(path_);
    std::vector<std::byte> found(contents_.size());
    ASSERT_EQ(file.size(), std::ssize(found));
    file.read_at(found.data(), file.size(), 0);
    if (std::memcmp(found.data(), contents_.data(), found.size()) == 0) return;
    const auto wrong = std::ranges::mismatch(contents_, found).in1;
    ADD_FAILURE() << "another byte at " << wrong - contents_.begin();
  }

  void expect_checksums(const std::vector<std::int64_t>& sums) const {
    std::int64_t next = 0;
    for (const OwnPiece& piece : pieces_) {
      EXPECT_EQ(piece.row.first_checksum, next);
      for (std::int64_t at = 0; at < piece.row.count; at += checksum_block, ++next) {
        const std::byte* const block = contents_.data() + piece.row.byte_offset + at;
        const auto length = static_cast<std::size_t>(std::min(checksum_block, piece.row.count - at));
        ASSERT_LT(next, std::ssize(sums));
        EXPECT_EQ(sums[static_cast<std::size_t>(next)], static_cast<std::int64_t>(hash_bytes(block, length)));
      }
    }
    EXPECT_EQ(next, std::ssize(sums));
  }

  /// Of a length that nothing else here is a multiple of.
  static std::vector<std::byte> random_bytes() {
    std::vector<std::byte> bytes(40'009);
    std::mt19937_64 random(7);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
  }

  const std::thread::id self_ = std::this_thread::get_id();
  const std::vector<std::byte> noise_ = random_bytes();
  std::vector<OwnPiece> pieces_;
  std::vector<std::byte> contents_, memory_;
  fs::path path_;
};

const std::vector<std::int64_t> sizes{3'000'001, 1, 4096, 1 << 20, 70'000, 5'242'880, 2'097'151, 0, 12};
const WriteOptions in_pages{.lanes = 3, .part_bytes = checksum_block, .least_direct = direct_page};

TEST_F(WritePieces, StandWhereTheyBelong) {
  for (const auto& [begin, gap] : {std::pair(0, 0), {1, 5}, {4095, 4096}, {12288, 0}}) {
    pieces_.clear();
    make(begin, gap, sizes);
    for (const fs::path& folder : {fs::temp_directory_path(), fs::path("/dev/shm")}) write(folder, in_pages);
  }
}

TEST_F(WritePieces, StandThereWhateverThePartsAndThreads) {
  make(2600, 0, sizes);
  write(fs::temp_directory_path(), {});
  write(fs::temp_directory_path(),
        {.lanes = 1, .part_bytes = 2 * checksum_block, .least_direct = direct_page});
  write(fs::temp_directory_path(), {.lanes = 8, .part_bytes = checksum_block, .least_direct = 1 << 30});
}

TEST_F(WritePieces, OfOtherMemoryAreReadByTheCallersThread) {
  const Elsewhere elsewhere;
  make(2600, 3, sizes);
  for (OwnPiece& piece : pieces_) {
    piece.data -= 1;
    piece.memory = &elsewhere;
  }
  for (const fs::path& folder : {fs::temp_directory_path(), fs::path("/dev/shm")}) write(folder, in_pages);
}

TEST_F(WritePieces, TakeAsMuchOfTheHostsMemoryAsIsPlanned) {
  make(2600, 0, {30'000'000});
  Counted host, other_host;
  write(fs::temp_directory_path(), {.host = &host});
  const Elsewhere elsewhere;
  for (OwnPiece& piece : pieces_) {
    piece.data -= 1;
    piece.memory = &elsewhere;
  }
  write(fs::temp_directory_path(), {.host = &other_host});
  EXPECT_EQ(other_host.most(), checkpoint_buffers(1, checkpoint_part));
  EXPECT_EQ(host.held() + other_host.held(), 0);
  if (host.most() == 0) GTEST_SKIP() << "the temporary folder has no direct I/O: buffers are NOT counted";
  EXPECT_EQ(host.most(), checkpoint_room);
}

TEST_F(WritePieces, OfTwoWritersMayShareAPage) {
  make(100, 0, std::vector<std::int64_t>(24, 1'300'003));
  std::vector<OwnPiece> odd;
  std::vector<OwnPiece> even;
  for (std::size_t i = 0; i < pieces_.size(); ++i) (i % 2 == 0 ? even : odd).push_back(pieces_[i]);
  path_ = fs::temp_directory_path() / ("ztrain_write_pieces." + std::to_string(::getpid()));
  std::ofstream(path_, std::ios::binary) << std::string(contents_.size(), '\xA5');
  std::thread other([&] { write_pieces(path_, odd, {}, in_pages); });
  write_pieces(path_, even, {}, in_pages);
  other.join();
  expect_written();
  fs::remove(path_);
}

TEST_F(WritePieces, EndWithTheErrorOfWhoLooksOn) {
  make(0, 0, sizes);
  path_ = fs::temp_directory_path() / ("ztrain_write_pieces." + std::to_string(::getpid()));
  std::ofstream(path_, std::ios::binary) << std::string(contents_.size(), '\xA5');
  const auto give_up = [](std::int64_t, std::int64_t) { fail("the run has failed"); };
  EXPECT_EQ(test::error_of([&] { write_pieces(path_, pieces_, give_up, in_pages); }), "the run has failed");
  fs::remove(path_);
  EXPECT_NE(test::error_of([&] { write_pieces(path_, pieces_, {}, in_pages); }), "no error");
}

TEST_F(WritePieces, EndWithAnErrorWhereAnotherFileHasTheName) {
  make(0, 0, sizes);
  path_ = fs::temp_directory_path() / ("ztrain_write_pieces." + std::to_string(::getpid()));
  std::ofstream(path_, std::ios::binary) << std::string(contents_.size(), '\xA5');
  const auto replace = [&](std::int64_t, std::int64_t) {
    fs::remove(path_);
    std::ofstream(path_, std::ios::binary) << "another";
  };
  EXPECT_EQ(test::error_of([&] { write_pieces(path_, pieces_, replace, in_pages); }),
            path_.string() + ": was removed or replaced while the checkpoint was written");
  fs::remove(path_);
}

/// Of a file, as the system has them in its cache.
std::int64_t cached_pages(const fs::path& path) {
  const auto bytes = static_cast<std::size_t>(fs::file_size(path));
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  ::close(file);
  std::vector<unsigned char> cached((bytes + direct_page - 1) / direct_page);
  EXPECT_EQ(::mincore(mapped, bytes, cached.data()), 0);
  ::munmap(mapped, bytes);
  return std::ranges::count_if(cached, [](unsigned char page) { return (page & 1) != 0; });
}

TEST_F(WritePieces, PassThePageCacheByWhereTheDiskCanDoThat) {
  EXPECT_FALSE(PosixFile::open_direct(PosixFile::create("/dev/shm/ztrain_write_pieces")).has_value())
      << "memory has no direct I/O";
  fs::remove("/dev/shm/ztrain_write_pieces");
  path_ = fs::temp_directory_path() / ("ztrain_write_pieces." + std::to_string(::getpid()));
  if (!PosixFile::open_direct(PosixFile::create(path_))) {
    fs::remove(path_);
    GTEST_SKIP() << "the temporary folder has no direct I/O: that way is NOT tested";
  }
  make(2600, 0, sizes);
  const auto pages_after = [&](const WriteOptions& options) {
    PosixFile::create(path_).reserve(std::ssize(contents_));
    fs::resize_file(path_, contents_.size());
    write_pieces(path_, pieces_, {}, options);
    return cached_pages(path_);
  };
  const std::int64_t all = std::ssize(contents_) / direct_page;
  EXPECT_GT(pages_after({.lanes = 2, .least_direct = 1 << 30}), all * 9 / 10) << "this is how many it sees";
  // Both ends of each piece, and pieces that fill no page; the system may read some ahead for these.
  EXPECT_LT(pages_after(in_pages), all / 10) << "of " << all;
  fs::remove(path_);
}

}  // namespace
}  // namespace ztrain::checkpoint::write_pieces_test
