// Learning-rate schedules and Adam's bias correction against their formulas.
#include "optim/schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "config/fields/fields.hpp"

namespace ztrain::optim::schedule_test {
namespace {

Schedule schedule(const std::string& name, double warmup = 10, double ratio = 0.1, std::int64_t decay = 0) {
  Schedule s;
  s.name = name;
  s.warmup = warmup;
  s.min_lr_ratio = ratio;
  s.decay = decay;
  return s;
}

TEST(Schedule, EveryOneRisesLinearlyToThePeak) {
  for (const auto& name : schedule_names()) {
    const auto s = schedule(name, 10, 0.1, 20);
    EXPECT_DOUBLE_EQ(learning_rate(s, 2.0, 0, 100), 0.2) << name;
    EXPECT_DOUBLE_EQ(learning_rate(s, 2.0, 4, 100), 1.0) << name;
    EXPECT_DOUBLE_EQ(learning_rate(s, 2.0, 9, 100), 2.0) << name;
    EXPECT_DOUBLE_EQ(learning_rate(s, 2.0, 10, 100), 2.0) << name;
    EXPECT_DOUBLE_EQ(learning_rate(schedule(name, 0), 2.0, 0, 100), 2.0) << name << " without warmup";
  }
}

TEST(Schedule, FollowsItsFormula) {
  EXPECT_DOUBLE_EQ(learning_rate(schedule("constant"), 2.0, 77, 110), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule("linear"), 2.0, 60, 110), 2.0 * (0.1 + 0.9 * 0.5));
  EXPECT_DOUBLE_EQ(learning_rate(schedule("linear"), 2.0, 85, 110), 2.0 * (0.1 + 0.9 * 0.25));
  EXPECT_DOUBLE_EQ(learning_rate(schedule("cosine"), 2.0, 60, 110), 2.0 * (0.1 + 0.9 * 0.5));
  EXPECT_DOUBLE_EQ(learning_rate(schedule("cosine"), 2.0, 35, 110),
                   2.0 * (0.1 + 0.9 * (1 + std::sqrt(0.5)) / 2));
  const auto wsd = schedule("wsd", 10, 0, 20);
  EXPECT_DOUBLE_EQ(learning_rate(wsd, 2.0, 80, 100), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(wsd, 2.0, 85, 100), 1.5);
  EXPECT_NEAR(learning_rate(wsd, 2.0, 99, 100), 0.1, 1e-15);
}

/// transformers rounds warmup_ratio times the steps up.
TEST(Schedule, AWarmupBelowOneIsAShareOfTheRun) {
  EXPECT_EQ(warmup_steps(schedule("cosine", 0.03), 101), 4);
  EXPECT_EQ(warmup_steps(schedule("cosine", 0.03), 100), 3);
  EXPECT_EQ(warmup_steps(schedule("cosine", 3), 100), 3);
  EXPECT_EQ(warmup_steps(schedule("cosine", 0), 100), 0);
  for (const std::int64_t step : {0, 9, 10, 55, 99})
    EXPECT_DOUBLE_EQ(learning_rate(schedule("cosine", 0.1), 2.0, step, 100),
                     learning_rate(schedule("cosine", 10), 2.0, step, 100));
}

TEST(Schedule, StaysAtItsEndAndNeverRisesAfterTheWarmup) {
  for (const auto& name : schedule_names()) {
    const auto s = schedule(name, 10, 0.1, 20);
    const double end = name == "constant" ? 2.0 : 0.2;
    EXPECT_DOUBLE_EQ(learning_rate(s, 2.0, 100, 100), end) << name;
    EXPECT_DOUBLE_EQ(learning_rate(s, 2.0, 5000, 100), end) << name;
    for (std::int64_t step = 10; step < 110; ++step) {
      EXPECT_LE(learning_rate(s, 2.0, step + 1, 100), learning_rate(s, 2.0, step, 100))
          << name << " " << step;
    }
  }
}

TEST(Schedule, NamesAreThoseTheDeckAllows) {
  EXPECT_EQ(schedule_names(), config::find_field("schedule.name")->legal.choices);
  for (const ScheduleInfo& row : schedules())
    EXPECT_NE(config::find_field("schedule.name")->doc.find(row.doc), std::string::npos) << row.name;
  try {
    learning_rate(schedule("step"), 1, 0, 1);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "schedule.name = \"step\" is unknown; legal: constant, linear, cosine, wsd");
  }
}

TEST(BiasCorrection, IsOneMinusThePower) {
  EXPECT_DOUBLE_EQ(bias_correction(0.9, 1), 0.1);
  EXPECT_NEAR(bias_correction(0.95, 10), 1 - std::pow(0.95, 10), 1e-15);
  EXPECT_DOUBLE_EQ(bias_correction(0.0, 3), 1.0);
  EXPECT_DOUBLE_EQ(bias_correction(0.5, 100000), 1.0);
  // 1 - beta^t loses its digits here when it is computed by subtraction.
  EXPECT_NEAR(bias_correction(1 - 0x1p-40, 1) / 0x1p-40, 1.0, 1e-14);
}

}  // namespace
}  // namespace ztrain::optim::schedule_test
