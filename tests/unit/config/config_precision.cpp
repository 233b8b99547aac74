// Dtypes that go together, rounding, loss scaling, and the presets of FSDP and DeepSpeed.
#include <gtest/gtest.h>

#include <array>

#include "config/fields/presets.hpp"
#include "config/text/print.hpp"
#include "tests/unit/config/config_deck.hpp"

namespace ztrain::config::config_precision_test {
namespace {

std::string precision_error(const std::string& lines) {
  return deck_error("[precision]\n" + lines);
}

TEST(PrecisionPresets, AreThoseOfFsdpAndDeepSpeed) {
  struct Row {
    const char* name;
    DType parameters, gradients, reduce, master, moments;
    const char* rounding;
    bool stochastic;
  };
  constexpr DType f32 = DType::f32, b16 = DType::bf16, f16 = DType::f16, f64 = DType::f64;
  const std::array rows{Row{"fp32", f32, f32, f32, f32, f32, "auto", false},
                        Row{"bf16", b16, f32, f32, f32, f32, "auto", false},
                        Row{"bf16-pure", b16, b16, b16, b16, b16, "stochastic", true},
                        Row{"fsdp-mixed", b16, f32, f32, f32, f32, "auto", false},
                        Row{"fsdp-bf16", b16, b16, b16, b16, b16, "nearest", false},
                        Row{"deepspeed-bf16", b16, b16, b16, f32, f32, "auto", false},
                        Row{"deepspeed-fp16", f16, f16, f16, f32, f32, "auto", false},
                        Row{"fp64", f64, f64, f64, f64, f64, "auto", false}};
  ASSERT_EQ(precision_preset_names().size(), rows.size());
  for (const Row& row : rows) {
    const Deck d = deck_of("", {std::string("--precision.preset=") + row.name});
    EXPECT_EQ(d.precision.parameters, row.parameters) << row.name;
    EXPECT_EQ(d.precision.gradients, row.gradients) << row.name;
    EXPECT_EQ(d.precision.reduce, row.reduce) << row.name;
    EXPECT_EQ(d.precision.master, row.master) << row.name;
    EXPECT_EQ(d.precision.moments, row.moments) << row.name;
    EXPECT_EQ(d.precision.rounding, row.rounding) << row.name;
    EXPECT_EQ(stochastic_rounding(d), row.stochastic) << row.name;
    EXPECT_EQ(source_of(d, "precision.rounding"), std::string("preset ") + row.name);
  }
}

/// Every combination of four types with each type of parameters, judged by the rules as the documentation
/// says them.
TEST(Precision, TypesThatGoTogether) {
  const auto legal = [](DType parameters, const std::string& key, DType type) {
    if (type == DType::f32) return true;
    if (type == DType::f64) return false;
    if (key == "moments") return type == DType::bf16;
    if (parameters == DType::f32) return key == "reduce" && type == DType::bf16;
    if (key == "master") return type == DType::bf16 && parameters == DType::bf16;
    return type == parameters;
  };
  int refused = 0;
  for (const DType parameters : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::string key : {"gradients", "reduce", "master", "moments"}) {
      for (const DType type : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
        const std::string lines =
            fmt::format("parameters = \"{}\"\n{} = \"{}\"\n", name_of(parameters), key, name_of(type));
        const std::string message = precision_error(lines);
        EXPECT_EQ(message == "no error", legal(parameters, key, type)) << lines << message;
        refused += message == "no error" ? 0 : 1;
      }
    }
  }
  EXPECT_EQ(refused, 27);
}

TEST(Precision, Fp8NeedsBf16) {
  EXPECT_EQ(deck_of("[precision]\nfp8 = \"rowwise\"\n").precision.fp8, "rowwise");
  EXPECT_EQ(precision_error("fp8 = \"tensorwise\"\npreset = \"fp32\"\n"),
            "input.toml:8: precision.fp8 = \"tensorwise\" needs precision.parameters = \"bf16\", but that is "
            "\"fp32\"; "
            "nearest legal: none");
}

TEST(Precision, MessagesNameTheNearestLegalType) {
  EXPECT_EQ(precision_error("gradients = \"fp16\"\n"),
            "input.toml:8: precision.gradients = \"fp16\" does not go with precision.parameters = \"bf16\": "
            "expected fp32 or bf16; nearest legal: bf16");
  EXPECT_EQ(precision_error("preset = \"fp32\"\ngradients = \"bf16\"\n"),
            "input.toml:9 (over preset fp32): precision.gradients = \"bf16\" does not go with "
            "precision.parameters = \"fp32\": "
            "expected fp32; nearest legal: fp32");
  EXPECT_EQ(precision_error("preset = \"deepspeed-fp16\"\nmaster = \"fp16\"\n"),
            "input.toml:9 (over preset deepspeed-fp16): precision.master = \"fp16\" does not go with "
            "precision.parameters = \"fp16\": "
            "expected fp32; nearest legal: fp32");
  // What the preset sets and the deck does not want is blamed on the key that does not fit it.
  EXPECT_EQ(precision_error("preset = \"deepspeed-bf16\"\nparameters = \"fp32\"\n"),
            "input.toml:9 (over preset deepspeed-bf16): precision.gradients = \"bf16\" does not go with "
            "precision.parameters = \"fp32\": "
            "expected fp32; nearest legal: fp32");
}

TEST(Precision, DoublesStandAlone) {
  EXPECT_EQ(precision_error("preset = \"fp64\"\nmoments = \"fp32\"\n"),
            "input.toml:9 (over preset fp64): fp64 is legal for all five dtypes of [precision] together "
            "only; 4 of them are fp64: "
            "write precision.preset = \"fp64\" alone");
}

TEST(Rounding, IsStochasticForA16BitMasterOnly) {
  EXPECT_FALSE(stochastic_rounding(deck_of()));
  EXPECT_TRUE(stochastic_rounding(deck_of("[precision]\nmaster = \"bf16\"\n")));
  EXPECT_FALSE(stochastic_rounding(deck_of("[precision]\nmaster = \"bf16\"\nrounding = \"nearest\"\n")));
  EXPECT_EQ(
      precision_error("rounding = \"stochastic\"\n"),
      "input.toml:8: precision.rounding = \"stochastic\" needs precision.master = \"bf16\", but that is "
      "\"fp32\"; nearest legal: auto");
  EXPECT_EQ(precision_error("preset = \"bf16-pure\"\nmaster = \"fp32\"\n"),
            "input.toml:9 (over preset bf16-pure): precision.rounding = \"stochastic\" needs "
            "precision.master = \"bf16\", but that is "
            "\"fp32\"; nearest legal: auto");
  EXPECT_NE(deck_hash(deck_of("[precision]\npreset = \"bf16-pure\"\n")),
            deck_hash(deck_of("[precision]\npreset = \"fsdp-bf16\"\n")));
}

TEST(LossScaling, DefaultsAreDeepSpeeds) {
  const LossScaling l = deck_of().loss_scaling;
  EXPECT_EQ(l.scale, 0);
  EXPECT_EQ(l.initial_scale_power, 16);
  EXPECT_EQ(l.window, 1000);
  EXPECT_EQ(l.hysteresis, 2);
  EXPECT_FALSE(l.consecutive_hysteresis);
  EXPECT_EQ(l.min_scale, 1);
}

TEST(LossScaling, IsForFp16Only) {
  const std::string fp16 = "[precision]\npreset = \"deepspeed-fp16\"\n";
  const Deck d = deck_of(fp16 + "[loss_scaling]\nwindow = 500\nconsecutive_hysteresis = true\nscale = 128\n");
  EXPECT_EQ(d.loss_scaling.window, 500);
  EXPECT_EQ(d.loss_scaling.scale, 128);
  EXPECT_TRUE(d.loss_scaling.consecutive_hysteresis);
  EXPECT_NE(deck_hash(d), deck_hash(deck_of(fp16)));
  EXPECT_EQ(deck_error("[loss_scaling]\nwindow = 500\n"),
            "input.toml:8: loss_scaling.window = 500 is for fp16 parameters only, and precision.parameters = "
            "\"bf16\"; leave it out, or write precision.preset = \"deepspeed-fp16\"");
  EXPECT_EQ(deck_error("", {"--loss_scaling.scale=1024", "--precision.preset=fp32"}),
            "command line: loss_scaling.scale = 1024 is for fp16 parameters only, and precision.parameters = "
            "\"fp32\"; leave it out, or write precision.preset = \"deepspeed-fp16\"");
  EXPECT_EQ(deck_error("[loss_scaling]\nwindow = 1000\n"), "no error") << "as it is by default";
}

TEST(LossScaling, BeginsAboveItsLeast) {
  const std::string fp16 = "[precision]\npreset = \"deepspeed-fp16\"\n[loss_scaling]\nmin_scale = 32\n";
  EXPECT_EQ(deck_error(fp16 + "initial_scale_power = 4\n"),
            "input.toml:10: loss_scaling.min_scale (32) is above the scale to begin with, 2 to the power of "
            "loss_scaling.initial_scale_power (4); nearest legal: 16");
  EXPECT_EQ(deck_error(fp16 + "initial_scale_power = 5\n"), "no error");
  EXPECT_EQ(deck_error(fp16 + "initial_scale_power = 4\nscale = 8\n"), "no error") << "static";
}

}  // namespace
}  // namespace ztrain::config::config_precision_test
