// What `ztrain bench` measures speeds against.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/bench.hpp"
#include "config/text/load.hpp"

namespace ztrain::bench::bench_peak_test {

using namespace job;
namespace {

using config::Arithmetic;

config::Deck deck_with(const char* fp8) {
  return config::parse_deck(
      std::string("[run]\nsteps = 1\n[data]\ntrain = \"a\"\n[model]\npreset = \"smoke\"\n"
                  "[batch]\nglobal = 1\n[precision]\npreset = \"bf16\"\nfp8 = \"") +
          fp8 + "\"\n",
      "input.toml");
}

constexpr const char* h100 = "NVIDIA H100 80GB HBM3";

TEST(Peak, OfTheParametersAlsoWithEightBitProducts) {
  for (const char* fp8 : {"none", "tensorwise", "rowwise"}) {
    const Peak peak = peak_of(deck_with(fp8), h100);
    EXPECT_EQ(peak.arithmetic, Arithmetic::bits16) << fp8;
    EXPECT_EQ(peak.flops_per_second, 989e12) << fp8;
  }
  EXPECT_EQ(fp8_peak_of(deck_with("none"), h100).flops_per_second, 0);
  EXPECT_EQ(fp8_peak_of(deck_with("rowwise"), h100).flops_per_second, 1979e12);
  EXPECT_EQ(fp8_peak_of(deck_with("rowwise"), "a device of no table").flops_per_second, 0);
  EXPECT_EQ(peak_of(deck_with("none"), "a device of no table").source, "");
}

/// A script that judges a run finds them in the JSON.
TEST(BenchReport, SaysHowKernelsWorkAndWarnsOfSlowWays) {
  Bench b;
  b.seconds = {1};
  b.median.seconds = b.parts.seconds = 1;
  b.notes = {{"attention", "cuDNN, sequences"}, {"products", "the loop", true}};
  const config::Deck deck = deck_with("none");
  const std::string text = bench_text(b, deck);
  EXPECT_NE(text.find("\nproducts       warning: the loop\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nattention      cuDNN, sequences\n"), std::string::npos) << text;
  const nlohmann::json notes = bench_json(b, deck, "").at("notes");
  EXPECT_EQ(notes,
            nlohmann::json::parse(R"([{"what": "attention", "text": "cuDNN, sequences", "warning": false},
                                             {"what": "products", "text": "the loop", "warning": true}])"));
}

TEST(Peak, IsTheDecksWhereItSaysOne) {
  config::Deck deck = deck_with("tensorwise");
  deck.cluster.peak_tflops = 100;
  EXPECT_EQ(peak_of(deck, h100).flops_per_second, 100e12);
  EXPECT_EQ(peak_of(deck, h100).source, "cluster.peak_tflops");
  EXPECT_EQ(fp8_peak_of(deck, h100).flops_per_second, 1979e12);
}

TEST(BenchReport, HasBothSharesWithEightBitProducts) {
  for (const char* fp8 : {"none", "tensorwise"}) {
    const config::Deck deck = deck_with(fp8);
    Bench bench;
    bench.tokens = 1000;
    bench.model_flops = 494.5e9;
    bench.seconds = {1};
    bench.median.seconds = bench.parts.seconds = 1;
    bench.peak = peak_of(deck, h100);
    bench.fp8_peak = fp8_peak_of(deck, h100);
    const auto json = bench_json(bench, deck, "");
    const std::string text = bench_text(bench, deck);
    EXPECT_DOUBLE_EQ(json.at("mfu"), 0.5);
    EXPECT_NE(text.find("50.0% of the dense 16-bit peak"), std::string::npos);
    const bool coded = deck.precision.fp8 != "none";
    EXPECT_EQ(json.at("fp8_mfu").is_null(), !coded);
    EXPECT_EQ(text.find("25.0% of the dense fp8 peak") != std::string::npos, coded);
  }
}

}  // namespace
}  // namespace ztrain::bench::bench_peak_test
