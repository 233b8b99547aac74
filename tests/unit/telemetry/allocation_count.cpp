#include "telemetry/allocation_count.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "telemetry/watchdog.hpp"

namespace ztrain::allocation_count_test {

using namespace ztrain::telemetry;

TEST(AllocationCount, CountsEveryFormOfNew) {
  const AllocationCount count;
  EXPECT_EQ(count.calls(), 0);
  const auto one = std::make_unique<int>(1);
  EXPECT_EQ(count.calls(), 1);
  EXPECT_EQ(count.bytes(), 4);
  const std::vector<double> array(100);
  struct alignas(256) Wide {
    char bytes[256];
  };
  const auto aligned = std::make_unique<Wide>();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(aligned.get()) % 256, 0u);
  EXPECT_EQ(count.calls(), 3);
  EXPECT_EQ(count.bytes(), 4 + 800 + 256);
}

TEST(AllocationCount, OnlyWhileItLives) {
  { const AllocationCount count; }
  const std::vector<int> outside(10);
  const AllocationCount count;
  EXPECT_EQ(count.calls(), 0);
}

TEST(AllocationCount, PausesAreOfTheirThread) {
  const AllocationCount count;
  const AllocationPause pause;
  {
    const AllocationPause inner;
    const std::vector<int> library(10);
  }
  const std::vector<int> still(10);
  EXPECT_EQ(count.calls(), 0);
  std::thread([] { const std::vector<int> other(10); }).join();
  EXPECT_EQ(count.calls(), 1);
}

TEST(AllocationCount, TheWatchdogTakesBeatsWithoutAllocating) {
  Watchdog watchdog(60);
  const std::string op(500, 'x');
  const AllocationCount count;
  for (int i = 0; i < 100; ++i) watchdog.beat(op);
  EXPECT_EQ(count.calls(), 0);
}

}  // namespace ztrain::allocation_count_test
