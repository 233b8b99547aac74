// What the CPU does not reach is filled from checkpoints and weights through a window of a few MiB, and what
// is on the disk alone passes the page cache by. One rank.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <deque>
#include <thread>

#include "checkpoint/format/damaged.hpp"
#include "checkpoint/hf/import.hpp"
#include "files/posix_file.hpp"
#include "layout/comm_cost.hpp"
#include "memory/provider.hpp"
#include "tests/support/checkpoint_model.hpp"

namespace ztrain::checkpoint_loading_test {
namespace {

using namespace test;
namespace fs = std::filesystem;

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

/// lm_head.weight has 23 MB, and behind it there are padding and one more in the same unit: padding lies
/// where a full window had other bytes before.
std::vector<ParameterShape> parameters() {
  auto parameters = awkward_parameters(1, 456789);
  parameters.push_back({"behind.weight", {5}, {}, 2, true});
  return parameters;
}

const StateKinds weights{{"model", DType::f32}};

/// The same shards where the CPU does not reach them, as `work` fills them; most: of the bytes that came at
/// once.
template <class Work>
Shards filled_elsewhere(const Place& place, const StateKinds& kinds, std::int64_t& most, Work work) {
  Shards shards(place, kinds);
  shards.clear(std::byte{0xee});
  std::deque<Elsewhere> memories;
  for (StateShard& shard : shards.states()) {
    shard.memory = &memories.emplace_back(shard.data, most);
    shard.data = memories.back().begin();
  }
  work(shards.states());
  return shards;
}

class CheckpointLoading : public testing::Test {
 protected:
  CheckpointLoading() {
    const Layout one(parameters(), {3, {1}});
    Shards saved = filled({&one, Coordinate({}, 0)}, DType::f32);
    checkpoint::save(temporary_.path(), 1, {&one, Coordinate({}, 0)}, saved.states(), {{"step", 1}});
  }
  /// Each shard of a layout of one, and of three.
  template <class Visit>
  static void for_each_place(Visit visit) {
    for (const int count : {1, 3}) {
      const Layout cut(parameters(), {3, {count}});
      for (int shard = 0; shard < count; ++shard)
        visit({&cut, Coordinate(test::mesh_of(1, count, 1), shard)});
    }
  }

  TemporaryFolder temporary_;
  fs::path path_ = temporary_.path() / "step_1";
};

TEST_F(CheckpointLoading, FillsWhatTheCpuDoesNotReachAFewMebibytesAtATime) {
  for_each_place([&](const Place& place) {
    for (const DType model : {DType::f32, DType::bf16}) {
      std::int64_t most = 0;
      const Shards found = filled_elsewhere(place, plain_states(model), most, [&](auto& states) {
        checkpoint::load(path_, place, states, {});
      });
      EXPECT_TRUE(filled(place, model) == found) << "shard " << place.at[Axis::shard];
      EXPECT_GT(most, checkpoint_part);
      EXPECT_LE(most, 2 * checkpoint_part);
    }
  });
}

/// Parts that are wider than they were written are no larger for it.
TEST_F(CheckpointLoading, WidensNoMoreAtATime) {
  const Layout one(parameters(), {3, {1}});
  const Place place{&one, Coordinate({}, 0)};
  Shards narrow = filled(place, DType::bf16);
  checkpoint::save(temporary_.path(), 2, place, narrow.states(), {{"step", 2}});
  for (const DType model : {DType::f32, DType::f64}) {
    std::int64_t most = 0;
    filled_elsewhere(place, plain_states(model), most, [&](auto& states) {
      checkpoint::load(temporary_.path() / "step_2", place, states, {});
    });
    EXPECT_GT(most, checkpoint_part);
    EXPECT_LE(most, 2 * checkpoint_part);
  }
}

/// What is on the disk alone does not come into the page cache, and is as right and as well looked at.
TEST_F(CheckpointLoading, PassesThePageCache) {
  const fs::path path = path_ / "shard_0000.h5";
  const PosixFile file = PosixFile::open_to_read(path);
  if (!PosixFile::open_direct_to_read(file))
    GTEST_SKIP() << "this file system reads through the page cache alone";
  const auto load = [&](const Place& place, const StateKinds& kinds, checkpoint::PageCache cache) {
    file.sync();
    const Descriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    ::posix_fadvise(opened, 0, 0, POSIX_FADV_DONTNEED);
    Shards found(place, kinds);
    found.clear(std::byte{0xee});
    checkpoint::load(path_, place, found.states(), {.cache = cache});
    return found;
  };
  for_each_place([&](const Place& place) {
    for (const DType model : {DType::f32, DType::bf16}) {
      EXPECT_TRUE(filled(place, model) == load(place, plain_states(model), checkpoint::PageCache::past))
          << "shard " << place.at[Axis::shard];
      EXPECT_FALSE(file.is_cached());
    }
  });
  const Layout one(parameters(), {3, {1}});
  const Place place{&one, Coordinate({}, 0)};
  load(place, plain_states(DType::f32), checkpoint::PageCache::through);
  EXPECT_TRUE(file.is_cached());
  const auto middle = file.size() / 2;
  char byte = 0;
  file.read_at(&byte, 1, middle);
  byte = static_cast<char>(byte ^ 1);
  PosixFile::open_to_write(path).write_at(&byte, 1, middle);
  EXPECT_THROW(load(place, plain_states(DType::f32), checkpoint::PageCache::past), checkpoint::Damaged);
}

TEST_F(CheckpointLoading, ImportsWeightsInTheSameWay) {
  for_each_place([&](const Place& place) {
    std::int64_t most = 0;
    const Shards found = filled_elsewhere(
        place, weights, most, [&](auto& states) { checkpoint::import_weights(path_, place, states, {}); });
    EXPECT_TRUE(filled(place, weights) == found) << "shard " << place.at[Axis::shard];
    EXPECT_GT(most, 0);
    EXPECT_LE(most, checkpoint_part);
  });
}

}  // namespace
}  // namespace ztrain::checkpoint_loading_test
