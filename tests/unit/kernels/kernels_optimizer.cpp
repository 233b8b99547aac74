// Every optimizer against serial float64, on pieces of odd sizes; what a skipped step keeps; what is refused.

#include <gtest/gtest.h>

#include <limits>

#include "base/error.hpp"
#include "base/host_threads.hpp"
#include "kernels/optimizer/optimizer_host.hpp"
#include "kernels/optimizer/reference.hpp"
#include "optim/code_map.hpp"
#include "tests/support/optimizer_job.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_optimizer_test {
namespace {

using namespace ztrain::test;

constexpr std::int64_t count = 3072;
constexpr int steps = 4;

/// Odd counts, gaps of padding, and groups that differ.
std::vector<OptimizerPiece> some_pieces() {
  return {{0, 300, 0.5, 0.1, 11}, {512, 257, 1, 0, 12}, {1024, 1, 2, 0.3, 13}, {1280, 1500, 1, 0.1, 14, 256}};
}

/// The states of element i that the rule steps, decoded.
std::vector<double> states_of(const OptimizerCase& c, const OptimizerArraysOf& a, std::int64_t i) {
  std::vector<double> values;
  const auto infos = c.states();
  for (std::size_t s = 0; s < infos.size(); ++s) {
    const double value = get(a.states[s], c.state_type(s), i);
    if (infos[s].dtype == DType::u8) {
      const auto code = static_cast<std::uint8_t>(value);
      const float scale = get_as<float>(a.states[s + 1], i / 256);
      values.push_back(scale *
                       (s == 0 ? optim::SignedCode::decode(code) : optim::UnsignedCode::decode(code)));
    } else if (infos[s].granule == 1) {
      values.push_back(value);
    }
  }
  return values;
}

double unit_of(DType type) {
  return type == DType::f64 ? rounding<double> : type == DType::f32 ? rounding<float> : rounding<bf16>;
}

/// What is stored of `expected` may differ by `units` half units of its type and by rounding before that.
void expect_near(double actual, double expected, DType type, double units, bool f64,
                 const std::string& what) {
  const double error =
      1.01 * units * unit_of(type) * std::abs(expected) + (f64 ? 16 * 0x1p-53 : 16 * 0x1p-24);
  ASSERT_LE(std::abs(actual - expected), error) << what << " is " << actual << ", expected " << expected;
}

class Optimizer : public ::testing::TestWithParam<OptimizerCase> {
 protected:
  /// Lion's direction is a difference that vanishes but for rounding: its sign is anyone's.
  static bool undecided(const OptimizerArraysOf& before, std::int64_t i, const StepScalars& scalars) {
    const OptimizerCase& c = GetParam();
    if (c.rule != "lion") return false;
    const double kept = c.settings.beta1 * get(before.states[0], c.types.moments, i);
    const double added =
        (1 - c.settings.beta1) * scalars.gradient_multiplier * get(before.gradient, c.types.gradient, i);
    return std::abs(kept + added) <= 1e-6 * std::abs(kept);
  }

  void expect_element(const OptimizerArraysOf& before, const OptimizerArraysOf& after, std::int64_t i,
                      const StepScalars& scalars, const OptimizerPiece& piece) {
    const OptimizerCase& c = GetParam();
    const bool f64 = c.types.parameter == DType::f64, coded = c.rule == "adamw_8bit";
    const auto stepped = [&](const OptimizerArraysOf& a) {
      return get(c.master() ? a.master : a.parameter, c.types.master, i);
    };
    if (undecided(before, i, scalars)) return;
    reference::OptimizerElement e{stepped(before), states_of(c, before, i)};
    reference::optimizer_step(coded ? "adamw" : c.rule, e, get(before.gradient, c.types.gradient, i), scalars,
                              c.settings, {piece.lr_scale, piece.weight_decay});
    const std::string at = "[" + std::to_string(i) + "]";
    // The decoded moments are rounded to float before AdamW steps them.
    const bool in_float = !f64 || coded;
    expect_near(stepped(after), e.value, c.types.master, c.stochastic ? 2 : 1, !in_float, "value" + at);
    if (c.master()) {
      const float value = static_cast<float>(stepped(after));
      ASSERT_EQ(get(after.parameter, c.types.parameter, i), static_cast<float>(bf16(value))) << "copy" << at;
    }
    if (coded) return;  // tests/unit/kernels/kernels_optimizer_codes.cpp
    const std::vector<double> states = states_of(c, after, i);
    for (std::size_t s = 0; s < states.size(); ++s)
      expect_near(states[s], e.states[s], c.types.moments, 1, !in_float, c.states()[s].name + at);
  }

  TestExec exec;
};

TEST_P(Optimizer, FollowsTheReferenceOnEveryPiece) {
  const OptimizerCase& c = GetParam();
  auto arrays = OptimizerArraysOf::start(c, 0, count);
  const auto step = make_step(c, arrays, some_pieces());
  const auto start = arrays;
  for (int t = 0; t < steps; ++t) {
    arrays.draw_gradients(c, 0, t);
    const auto before = arrays;
    const StepScalars scalars = scalars_of(c.settings, t);
    step->run(*exec, Shared(scalars).get());
    for (const OptimizerPiece& piece : some_pieces())
      for (std::int64_t i = piece.begin; i < piece.begin + piece.count; ++i) {
        expect_element(before, arrays, i, scalars, piece);
        if (HasFatalFailure()) return;
      }
  }
  for (const std::int64_t i : {300, 511, 769, 1025, 2780, 3071}) {
    EXPECT_EQ(get(arrays.parameter, c.types.parameter, i), get(start.parameter, c.types.parameter, i)) << i;
    for (const double state : states_of(c, arrays, i)) EXPECT_EQ(state, 0) << i;
  }
}

TEST_P(Optimizer, KeepsEveryBitWhenTheGradientIsNotFinite) {
  const OptimizerCase& c = GetParam();
  auto arrays = OptimizerArraysOf::start(c, 0, count);
  const auto step = make_step(c, arrays, some_pieces());
  StepScalars scalars = scalars_of(c.settings, 0);
  arrays.draw_gradients(c, 0, 0);
  step->run(*exec, Shared(scalars).get());
  put(arrays.gradient, c.types.gradient, 17, std::numeric_limits<double>::infinity());
  put(arrays.gradient, c.types.gradient, 600, std::nan(""));
  const auto before = arrays;
  scalars.found_inf = 1;
  scalars.gradient_multiplier = std::nan("");
  step->run(*exec, Shared(scalars).get());
  EXPECT_TRUE(arrays == before);
  arrays.draw_gradients(c, 0, 1);
  const auto moved = arrays;
  scalars = scalars_of(c.settings, 1);
  step->run(*exec, Shared(scalars).get());
  EXPECT_FALSE(arrays == moved);
}

/// By threads of the host, in blocks of any order, with a parameter whose old bits are not there.
TEST_P(Optimizer, OfTheHostHasTheBitsOfTheDevice) {
  const OptimizerCase& c = GetParam();
  auto device = OptimizerArraysOf::start(c, 0, count);
  auto host = device;
  const auto on_device = make_step(c, device, some_pieces());
  OptimizerArrays arrays = host.view(c);
  arrays.parameter_is_new = c.master();
  const auto on_host =
      make_host_optimizer_step(c.rule, c.settings, c.types, arrays, some_pieces(), {c.stochastic, 3});
  HostThreads threads(2);
  for (int t = 0; t < 3; ++t) {
    device.draw_gradients(c, 0, t);
    host.draw_gradients(c, 0, t);
    StepScalars scalars = scalars_of(c.settings, t);
    scalars.found_inf = t == 1 ? 1 : 0;
    const Bytes before = host.parameter;
    if (c.master())
      for (const OptimizerPiece& piece : some_pieces())
        for (std::int64_t i = piece.begin; i < piece.begin + piece.count; ++i)
          put(host.parameter, c.types.parameter, i, std::nan(""));
    on_device->run(*exec, Shared(scalars).get());
    threads.share(on_host->blocks(), [&](std::int64_t i) { on_host->run(i, i + 1, scalars); });
    ASSERT_TRUE(host == device) << "step " << t;
    EXPECT_EQ(host.parameter == before, t == 1) << "step " << t;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Optimizer, ::testing::ValuesIn(optimizer_cases()));

std::string refusal(const OptimizerCase& c, std::vector<OptimizerPiece> pieces,
                    std::size_t states_left_out = 0) {
  try {
    Bytes bytes(4096);
    OptimizerArrays arrays{bytes.data(), c.master() ? bytes.data() : nullptr, bytes.data(), {}};
    arrays.states.assign(c.states().size() - states_left_out, bytes.data());
    make_optimizer_step(c.rule, c.settings, c.types, arrays, std::move(pieces), {});
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

void expect_refused(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
}

TEST(OptimizerStep, RefusesWhatItHasNoKernelFor) {
  using enum DType;
  const optim::Settings settings;
  EXPECT_EQ(refusal({"adamw", settings, {f32, f32, f32, f32}}, {{256, 1}}), "");
  expect_refused(refusal({"adamw", settings, {f32, f32, DType::bf16, f32}}, {}),
                 {"adamw", "fp32 param", "bf16 grad"});
  expect_refused(refusal({"lion", settings, {f64, f64, f64, f32}}, {}), {"lion", "fp64", "fp32 moments"});
  expect_refused(refusal({"sgd", settings, {i32, f32, f32, f32}}, {}), {"int32 parameters", "fp32 master"});
  expect_refused(refusal({"adamw", settings, {f32, f32, f32, f32}}, {{255, 1}}), {"255", "256"});
  expect_refused(refusal({"adamw", settings, {f32, f32, f32, f32}}, {}, 1), {"1 states", "keeps 2"});
  // Rules whose states have types of their own take no notice of precision.moments.
  EXPECT_EQ(refusal({"adamw_8bit", settings, {f64, f64, f64, f32}}, {}), "");
  EXPECT_EQ(refusal({"sgd", settings, {f64, f64, f64, f32}}, {}), "");
  EXPECT_THROW(make_optimizer_step("adamw", settings, {DType::bf16, f32, f32, f32}, {}, {}, {}), Error);
}

TEST(OptimizerTable, NamesItsRows) {
  EXPECT_EQ(optim::names(),
            (std::vector<std::string>{"adamw", "adam", "sgd", "lion", "adamw_8bit", "muon", "onebit_adam"}));
  for (const std::string& name : optim::names()) EXPECT_EQ(optim::find(name).name, name);
  try {
    optim::find("adams");
    FAIL() << "found";
  } catch (const Error& e) {
    expect_refused(e.what(), {"adams", "adamw", "lion"});
  }
}

TEST(OptimizerTable, SgdKeepsNothingWithoutMomentum) {
  const optim::Info& sgd = optim::find("sgd");
  EXPECT_TRUE(sgd.states({}).empty());
  optim::Settings settings;
  settings.momentum = 0.9;
  ASSERT_EQ(sgd.states(settings).size(), 1u);
  EXPECT_EQ(sgd.states(settings)[0].name, "momentum_buffer");
  settings = {};
  settings.nesterov = true;
  EXPECT_THROW(sgd.states(settings), Error);
}

}  // namespace
}  // namespace ztrain::kernels::kernels_optimizer_test
