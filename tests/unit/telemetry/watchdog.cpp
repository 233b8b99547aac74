// A watchdog that asks other ranks, with a folder in which none answers.

#include "telemetry/watchdog.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "tests/support/error_of.hpp"

namespace ztrain::watchdog_test {
namespace {

using telemetry::Watchdog;

TEST(Watchdog, IsAloneWhereItsPlaceCannotBeWritten) {
  std::atomic<int> said = 0;
  Watchdog watchdog(0.1,
                    [&](const std::string& text) { said = text.find('\n') == std::string::npos ? 1 : 2; });
  const auto error = test::error_of([&] {
    const Watchdog::Exchange exchange(watchdog, {"/nowhere/places", 2}, [] { return telemetry::Place(); });
  });
  EXPECT_NE(error.find("/nowhere/places"), std::string::npos) << error;
  while (said == 0) usleep(1000);
  EXPECT_EQ(said, 1) << "nobody was asked";
}

TEST(Watchdog, GoesOnWhereTheWorkDoesWhileRanksAreAsked) {
  const auto folder = std::filesystem::temp_directory_path() / ("ztrain-asked-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  {
    std::atomic<bool> ended = false;
    Watchdog watchdog(0.2, [&](const std::string&) { ended = true; });
    const Watchdog::Exchange exchange(watchdog, {folder.string(), 2}, [] { return telemetry::Place(); });
    usleep(500000);  // it waits for the other's answer for a second
    for (int i = 0; i < 100; ++i) {
      watchdog.beat("step");
      usleep(15000);
    }
    EXPECT_FALSE(ended);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ztrain::watchdog_test
