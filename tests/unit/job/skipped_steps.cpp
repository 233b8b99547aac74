// Steps whose gradients are not finite: how many a run bears, and what it says of them.
#include "job/skipped_steps.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string_view>
#include <utility>

#include "tests/unit/config/config_deck.hpp"

namespace ztrain::job::overflow_test {
namespace {

TEST(SkippedSteps, TwentySkippedStepsInARowAreTooMany) {
  const config::Deck deck = config::on_ranks("[precision]\npreset = \"bf16\"\n", 1);
  SkippedSteps overflow(deck);
  for (int round = 0; round < 3; ++round) {
    for (int step = 0; step < 19; ++step) overflow.after_step(true, step);
    EXPECT_EQ(overflow.skipped_in_a_row(), 19);
    EXPECT_FALSE(overflow.has_given_up());
    EXPECT_EQ(overflow.after_step(false, 20), "");
    EXPECT_EQ(overflow.skipped_in_a_row(), 0);
  }
  for (int step = 0; step < 20; ++step) overflow.after_step(true, step);
  EXPECT_TRUE(overflow.has_given_up());
  // A run that goes on from a checkpoint goes on counting.
  SkippedSteps resumed(deck, nullptr, 19);
  resumed.after_step(true, 1);
  EXPECT_TRUE(resumed.has_given_up());
}

TEST(SkippedSteps, NoneIsSkippedWhereUnitsAreSteppedDuringBackward) {
  const config::Deck deck = config::on_ranks(
      "[precision]\npreset = \"bf16\"\n[optimizer]\nmax_norm = 0\nduring_backward = true\n", 1);
  SkippedSteps early(deck);
  EXPECT_EQ(early.after_step(false, 6), "");
  try {
    early.after_step(true, 7);
    FAIL() << "it went on";
  } catch (const Error& e) {
    const std::string text = e.what();
    for (const char* part : {"step 7", "optimizer.during_backward", "last checkpoint"})
      EXPECT_NE(text.find(part), text.npos) << part << " in " << text;
  }
}

/// The scale is divided by the tokens that a data-parallel rank has in a step, however other axes cut these.
TEST(SkippedSteps, InFp16TheScaleIsOfTheMeanOverTheTokensOfARank) {
  struct Row {
    const char* mesh;
    int ranks, data_ranks;
  };
  for (const auto& [mesh, ranks, data_ranks] :
       {Row{"", 1, 1}, Row{"shard = 4", 4, 4}, Row{"replicate = 2\nshard = 2", 4, 4},
        Row{"shard = 2\ncontext = 2", 4, 2}, Row{"shard = 2\ntensor = 2\npipeline = 2", 8, 2}})
    for (const auto& [micro, accumulation] : {std::pair{1, 1}, {3, 1}, {1, 5}, {3, 5}})
      for (const char* preset : {"deepspeed-fp16", "bf16", "fp32"}) {
        const config::Deck deck = config::on_ranks(
            fmt::format("[mesh]\n{}\n[precision]\npreset = \"{}\"\n", mesh, preset), ranks, 8,
            {"data.sequence=64", fmt::format("batch.micro={}", micro),
             fmt::format("batch.global={}", micro * accumulation * data_ranks)});
        const bool scales = std::string_view(preset) == "deepspeed-fp16";
        double divisor = 1;
        while (scales && 2 * divisor <= 64 * micro * accumulation) divisor *= 2;
        EXPECT_EQ(SkippedSteps(deck).loss_scale(), (scales ? 65536 : 1) / divisor)
            << deck.mesh.shard << " shards of " << ranks << ", " << micro << " x " << accumulation;
      }
}

TEST(SkippedSteps, InFp16TheLossScaleFallsBeforeARunGivesUp) {
  const config::Deck deck = config::on_ranks(
      "[precision]\npreset = \"deepspeed-fp16\"\n[loss_scaling]\ninitial_scale_power = 3\nhysteresis = 1\n"
      "min_scale = 2\nwindow = 2\n",
      1);
  SkippedSteps overflow(deck);
  EXPECT_NE(overflow.after_step(true, 1).find("falls from 8 to 4"), std::string::npos);
  EXPECT_EQ(overflow.after_step(false, 2), "");
  EXPECT_NE(overflow.after_step(false, 3).find("rises from 4 to 8"), std::string::npos);
  for (int step = 0; step < 40; ++step) overflow.after_step(true, step);
  EXPECT_FALSE(overflow.has_given_up()) << "another loss scale, set by hand, might do";
  EXPECT_TRUE(overflow.diverging());
  EXPECT_EQ(overflow.state().scale, 2);
  // What is saved goes on as it was.
  SkippedSteps resumed(deck, &overflow.state(), overflow.skipped_in_a_row());
  EXPECT_EQ(resumed.loss_scale(), overflow.loss_scale());
  EXPECT_TRUE(resumed.diverging());
}

}  // namespace
}  // namespace ztrain::job::overflow_test
