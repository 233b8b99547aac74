// The sequence of loss scales.

#include "optim/loss_scaler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
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

/// Each option is that of now, and what is left of the hysteresis is no more than the option.
TEST(LossScaler, GoesOnUnderOtherOptions) {
  for (const int saved : {1, 2, 3, 4})
    for (const int option : {1, 2, 3, 4}) {
      LossScaler scaler(small(option), {64, 2, saved});
      const int left = std::min(saved, option);
      EXPECT_EQ(scaler.state(), (LossScalerState{64, 2, left}));
      const std::vector<double> falls = scales(scaler, std::string(static_cast<std::size_t>(left), 'x'));
      EXPECT_EQ(std::ranges::count(falls, 64), left - 1) << saved << " left of " << option;
      EXPECT_EQ(falls.back(), 32);
    }
  LossScalerOptions options = small(3, true);
  LossScaler consecutive(options, {64, 0, 1});
  EXPECT_EQ(scales(consecutive, "x.xxx"), (Scales{32, 32, 32, 32, 16}));
  options = small();
  options.min_scale = 100;
  LossScaler raised(options, {64, 0, 1});
  EXPECT_TRUE(raised.at_minimum());
  EXPECT_EQ(scales(raised, "x"), (Scales{100}));
  options = small();
  options.window = 2;
  LossScaler shorter(options, {64, 1, 1});
  EXPECT_EQ(scales(shorter, "..."), (Scales{128, 128, 256}));
  options.scale = 128;
  const LossScaler fixed(options, {64, 1, 1});
  LossScaler again(small(), fixed.state());
  EXPECT_EQ(scales(again, "x"), (Scales{64})) << "a dynamic scale begins at the fixed one before it";
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
