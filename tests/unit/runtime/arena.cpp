#include "memory/arena.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "memory/provider.hpp"

namespace ztrain::arena_test {

using memory::Arena;

namespace {

std::int64_t resident_kib() {
  long pages = 0, resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%ld %ld", &pages, &resident) != 2) return -1;
  std::fclose(file);
  return resident * 4;
}

template <class T>
T read(const Arena& arena, std::int64_t offset) {
  T value;
  std::memcpy(&value, arena.at(offset), sizeof value);
  return value;
}

TEST(Arena, AlignedZeroedAndMovable) {
  for (const std::int64_t bytes : {1, 5000, 100 << 20}) {
    Arena arena("test", bytes);
    EXPECT_EQ(arena.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.at(0)) % 4096, 0u);
    EXPECT_EQ(*arena.at(bytes - 1), std::byte{0});
    *arena.at(bytes - 1) = std::byte{7};
    const Arena moved(std::move(arena));
    EXPECT_EQ(*moved.at(bytes - 1), std::byte{7});
  }
  EXPECT_EQ(Arena("empty", 0).bytes(), 0);
}

TEST(Arena, UntouchedPagesTakeNoMemory) {
  const std::int64_t before = resident_kib();
  const Arena arena("test", std::int64_t{1} << 30, Arena::Guards::on);
  EXPECT_LT(resident_kib() - before, 16 << 10);
  std::memset(arena.at(0), 1, 64 << 20);
  EXPECT_GE(resident_kib() - before, 60 << 10);
}

TEST(Arena, ReleasedOnDestruction) {
  const std::int64_t before = resident_kib();
  {
    const Arena arena("test", 64 << 20);
    std::memset(arena.at(0), 1, 64 << 20);
  }
  EXPECT_LT(resident_kib() - before, 16 << 10);
}

TEST(Arena, PoisonIsNanInEveryFloatType) {
  Arena arena("test", 64);
  arena.poison(8, 24);
  EXPECT_TRUE(std::isnan(read<double>(arena, 8)));
  EXPECT_TRUE(std::isnan(read<float>(arena, 16)));
  EXPECT_TRUE(std::isnan(static_cast<float>(read<bf16>(arena, 30))));
  EXPECT_EQ(read<double>(arena, 0), 0.0);
  EXPECT_EQ(read<double>(arena, 32), 0.0);
  EXPECT_THROW(arena.poison(60, 5), Error);
  EXPECT_THROW(arena.poison(-1, 2), Error);
}

TEST(Arena, GuardsCatchWritesOnBothSides) {
  for (const std::int64_t bytes : {std::int64_t{1000}, std::int64_t{70} << 20}) {
    Arena arena("transient", bytes, Arena::Guards::on);
    std::memset(arena.at(0), 0x11, static_cast<std::size_t>(bytes));
    EXPECT_NO_THROW(arena.check_guards());
    *arena.at(bytes + 3) = std::byte{0};
    try {
      arena.check_guards();
      ADD_FAILURE() << "not seen";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(std::to_string(bytes + 3)), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("transient"), std::string::npos) << error.what();
    }
    *arena.at(bytes + 3) = std::byte{0xA5};
    EXPECT_NO_THROW(arena.check_guards());
    *arena.at(-1) = std::byte{0};
    EXPECT_THROW(arena.check_guards(), Error);
  }
}

TEST(Arena, TooLargeSaysWhatIsThere) {
  const auto machine = memory::machine_memory();
  ASSERT_GT(machine.total, 0);
  EXPECT_LE(machine.available, machine.total);
  try {
    const Arena arena("persistent", machine.total + (std::int64_t{1} << 40));
    ADD_FAILURE() << "granted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the persistent arena needs"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("available"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ztrain::arena_test
