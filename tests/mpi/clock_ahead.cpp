// Clocks of ranks, compared by messages.

#include "runtime/session/clock_ahead.hpp"

#include <gtest/gtest.h>

#include "tests/support/mpi_main.hpp"

namespace ztrain::clock_ahead_test {
namespace {

/// Each rank's clock began some weeks before that of the rank before it.
constexpr double apart = 2e6;

double own_clock() {
  return now() + apart * test::session().rank();
}

/// Ranks of one machine have one clock: what is found is what was added, up to the time of a message.
TEST(ClockAhead, IsWhatClocksDifferBy) {
  EXPECT_NEAR(runtime::clock_ahead(test::session(), own_clock), apart * test::session().rank(), 1000);
}

/// Of a clock that goes on by a second with each look, the answer is found half way between two of them.
TEST(ClockAhead, IsTakenHalfWayThroughAQuestion) {
  double seconds = 0;
  const auto counting = [&] { return ++seconds; };
  const double ahead = runtime::clock_ahead(test::session(), counting);
  if (test::session().rank() == 0) {
    EXPECT_EQ(ahead, 0);
    EXPECT_EQ(seconds, 16 * (test::session().size() - 1)) << "two looks for each of eight questions";
  } else {
    // The first question is answered at 1; it was asked 1 behind the 16 looks for each rank before this one.
    EXPECT_EQ(ahead, 1 - (16 * (test::session().rank() - 1) + 1.5));
  }
}

}  // namespace
}  // namespace ztrain::clock_ahead_test
