// The sequence of loss scales.

#include "optim/loss_scaler.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"

namespace ztrain::optim::loss_scaler_test {
namespace {

/// Scales after each step of a history: '.' a good step, 'x' an overflow.
std::vector<double> scales(LossScaler& scaler, const std::string& history) {
  std::vector<double> result;
  for (const char step : history) {
    scaler.update(step == 'x');
    result.push_back(scaler.scale());
  }
  return result;
}
std::vector<double> scales(const LossScalerOptions& options, const std::string& history) {
  LossScaler scaler(options);
  return scales(scaler, history);
}

/// Small numbers: starts at 16, window 3, hysteresis 1.
LossScalerOptions small(int hysteresis = 1, bool consecutive = false) {
  return {
      .initial_scale_power = 4, .window = 3, .hysteresis = hysteresis, .consecutive_hysteresis = consecutive};
}

using Scales = std::vector<double>;

TEST(LossScaler, DefaultsAreDeepSpeeds) {
  LossScaler scaler{LossScalerOptions{}};
  EXPECT_TRUE(scaler.dynamic());
  EXPECT_EQ(scaler.scale(), 65536);
  EXPECT_EQ(scales(scaler, "xx"), (Scales{65536, 32768}));
  EXPECT_EQ(scales(scaler, std::string(999, '.')).back(), 32768);
  EXPECT_EQ(scales(scaler, "."), (Scales{65536}));
}

TEST(LossScaler, DoublesAfterEachWindowOfGoodSteps) {
  EXPECT_EQ(scales(small(), "......."), (Scales{16, 16, 32, 32, 32, 64, 64}));
}

TEST(LossScaler, AnOverflowHalvesAndStartsTheWindowAnew) {
  EXPECT_EQ(scales(small(), "..x..."), (Scales{16, 16, 8, 8, 8, 16}));
  EXPECT_EQ(scales(small(), "xx.x"), (Scales{8, 4, 4, 2}));
}

TEST(LossScaler, HysteresisIsUsedUpOnceUntilTheScaleIsRaised) {
  // The second overflow halves, as does each one after it; good steps between them give nothing back.
  EXPECT_EQ(scales(small(2), "xxx"), (Scales{16, 8, 4}));
  EXPECT_EQ(scales(small(2), "x..x..x"), (Scales{16, 16, 16, 8, 8, 8, 4}));
  // Raised after three good steps: one overflow is free again.
  EXPECT_EQ(scales(small(2), "x...xx"), (Scales{16, 16, 16, 32, 32, 16}));
  EXPECT_EQ(scales(small(3), "xxxx"), (Scales{16, 16, 8, 4}));
}

TEST(LossScaler, ConsecutiveHysteresisIsRenewedByEveryGoodStep) {
  EXPECT_EQ(scales(small(2, true), "x.x.x"), (Scales{16, 16, 16, 16, 16}));
  EXPECT_EQ(scales(small(2, true), "xx.x"), (Scales{16, 8, 8, 8}));
}

TEST(LossScaler, StopsAtTheMinimum) {
  LossScalerOptions options = small();
  options.min_scale = 3;
  LossScaler scaler(options);
  EXPECT_FALSE(scaler.at_minimum());
  EXPECT_EQ(scales(scaler, "xxxx..."), (Scales{8, 4, 3, 3, 3, 3, 6}));
  EXPECT_FALSE(scaler.at_minimum());
  EXPECT_EQ(scales(options, "xxx").back(), 3);
}

TEST(LossScaler, AStaticScaleNeverChanges) {
  LossScalerOptions options = small();
  options.scale = 128;
  LossScaler scaler(options);
  EXPECT_FALSE(scaler.dynamic());
  EXPECT_TRUE(scaler.at_minimum());
  EXPECT_EQ(scales(scaler, "x....x"), Scales(6, 128));
  EXPECT_EQ(LossScaler(options, {4, 2, 1}).scale(), 128);
}

TEST(LossScaler, GoesOnFromItsState) {
  const std::string history = "..x.x....x.xx......x...";
  for (const bool consecutive : {false, true})
    for (std::size_t cut = 0; cut <= history.size(); ++cut) {
      LossScaler whole(small(2, consecutive)), first(small(2, consecutive));
      scales(whole, history);
      scales(first, history.substr(0, cut));
      LossScaler second(small(2, consecutive), first.state());
      scales(second, history.substr(cut));
      EXPECT_EQ(second.state(), whole.state()) << cut;
    }
}

TEST(LossScaler, RefusesWhatMakesNoSense) {
  EXPECT_THROW(LossScaler({.scale = -1}), Error);
  EXPECT_THROW(LossScaler({.initial_scale_power = 1000}), Error);
  EXPECT_THROW(LossScaler({.window = 0}), Error);
  EXPECT_THROW(LossScaler({.hysteresis = 0}), Error);
  EXPECT_THROW(LossScaler({.min_scale = 0}), Error);
  EXPECT_THROW(LossScaler({}, {0, 0, 1}), Error);
}

}  // namespace
}  // namespace ztrain::optim::loss_scaler_test
