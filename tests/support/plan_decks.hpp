#pragma once
// A small deck, and questions to plan about it.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "plan/cost.hpp"

namespace ztrain::test {

constexpr const char* deck_text = R"([run]
steps = 3
output = "${NO_SUCH_VARIABLE}/out"
[data]
train = ["${NO_SUCH_VARIABLE}/*.bin"]
sequence = 64
[model]
hidden_size = 128
intermediate_size = 352
num_hidden_layers = 4
num_attention_heads = 4
vocab_size = 500
[batch]
global = 32
micro = 2
[precision]
preset = "fp32"
)";

class Decks : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "ztrain-plan-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
    std::ofstream(folder / "deck.toml") << deck_text;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  /// On a machine that has this many bytes a rank, all of them for the plan.
  plan::Question question(int ranks, double bytes = 0, std::vector<std::string> overrides = {}) const {
    plan::Question q{
        .deck = (folder / "deck.toml").string(), .overrides = std::move(overrides), .ranks = ranks};
    q.limits.outside_memory = 0;
    if (bytes > 0) q.limits.device_memory = bytes;
    return q;
  }
  static double held(const plan::Cost& c) {
    return static_cast<double>(c.largest(program::Tier::device).total(program::Tier::device));
  }

  std::filesystem::path folder;
};

}  // namespace ztrain::test
