// When a run ends itself, by clocks that the tests set.

#include "train/time_limits.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "runtime/session/launcher.hpp"

namespace ztrain::time_limits_test {
namespace {

using train::TimeLimits;

config::Deck deck_with(double minutes, double margin, std::int64_t interval = 0) {
  config::Deck deck;
  deck.run.max_minutes = minutes;
  deck.run.end_margin = margin;
  deck.checkpoint.interval = interval;
  return deck;
}

TEST(TimeLimits, CountMinutesFromTheStart) {
  const TimeLimits limits(deck_with(2, 100), {});
  EXPECT_FALSE(limits.minutes_are_over(119));
  EXPECT_TRUE(limits.minutes_are_over(120));
  EXPECT_FALSE(limits.allocation_ends(1e12)) << "there is none";
  EXPECT_EQ(limits.seconds_left(20, 0), 100);
  EXPECT_FALSE(TimeLimits(deck_with(0, 100), {}).seconds_left(20, 0));
}

TEST(TimeLimits, KeepRoomForAStepAndASave) {
  TimeLimits limits(deck_with(0, 100), 5000);
  EXPECT_FALSE(limits.allocation_ends(4899));
  EXPECT_TRUE(limits.allocation_ends(4900));
  limits.turn_took(30);
  limits.turn_took(10);
  EXPECT_TRUE(limits.allocation_ends(4870));
  EXPECT_FALSE(limits.allocation_ends(4869));
  limits.expect_save(500);
  EXPECT_EQ(limits.margin(), 630) << "no save has been measured";
  limits.save_took(200);
  limits.save_took(20);
  EXPECT_EQ(limits.margin(), 330);
  EXPECT_TRUE(limits.allocation_ends(4670));
  EXPECT_FALSE(limits.allocation_ends(4669));
  EXPECT_EQ(limits.seconds_left(0, 4000), 670);
  EXPECT_EQ(limits.seconds_left(0, 6000), 0);
}

/// At its end a run may have to wait for a save behind training before it writes the last one.
TEST(TimeLimits, KeepRoomForTwoSavesWhereOneMayBeUnderWay) {
  for (const bool async : {false, true})
    for (const std::int64_t interval : {0, 50}) {
      config::Deck deck = deck_with(0, 100, interval);
      deck.checkpoint.async = async;
      const int saves = async && interval > 0 ? 2 : 1;
      TimeLimits limits(deck, 5000);
      limits.turn_took(30);
      limits.expect_save(500);
      EXPECT_EQ(limits.margin(), 130 + saves * 500);
      limits.save_took(200);
      EXPECT_EQ(limits.margin(), 130 + saves * 200) << async << ", interval " << interval;
    }
}

TEST(TimeLimits, TheFirstOfBothCounts) {
  const TimeLimits limits(deck_with(1, 0), 5000);
  EXPECT_EQ(limits.seconds_left(10, 4980), 20);
  EXPECT_EQ(limits.seconds_left(10, 4000), 50);
}

TEST(TimeLimits, NoRoomIsKeptWhereNothingIsSaved) {
  EXPECT_FALSE(TimeLimits(deck_with(0, 100, -1), 5000).allocation_ends(4999));
  EXPECT_FALSE(TimeLimits(deck_with(0, -1), 5000).allocation_ends(4999));
}

TEST(TimeLimits, SlurmSaysTheEndOfItsJobsAlone) {
  const auto end_of = [](const char* job, const char* end) {
    setenv("SLURM_JOB_ID", job, 1);
    setenv("SLURM_JOB_END_TIME", end, 1);
    const auto hints = runtime::slurm_hints();
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURM_JOB_END_TIME");
    return hints.end;
  };
  EXPECT_EQ(end_of("7", "1700000000"), 1.7e9);
  for (const char* wrong : {"", "0", "-5", "soon", "17 s", "NONE"}) EXPECT_FALSE(end_of("7", wrong)) << wrong;
  EXPECT_FALSE(end_of("", "1700000000")) << "left from another job";
}

TEST(MeanStep, ForgetsTheFirstStepAndFollowsLaterOnes) {
  train::MeanStep mean;
  EXPECT_EQ(mean.seconds(), 0);
  mean.add(100);
  EXPECT_EQ(mean.seconds(), 100) << "there is nothing else";
  mean.add(2);
  EXPECT_EQ(mean.seconds(), 2);
  mean.add(3);
  EXPECT_DOUBLE_EQ(mean.seconds(), 2.1);
  for (int step = 0; step < 100; ++step) mean.add(4);
  EXPECT_NEAR(mean.seconds(), 4, 1e-3);
}

}  // namespace
}  // namespace ztrain::time_limits_test
