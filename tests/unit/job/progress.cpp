// What a checkpoint records beside its tensors: what is written can be read.
#include "job/progress.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "job/product_algorithms.hpp"
#include "job/saved_course.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/config/config_deck.hpp"

namespace ztrain::job::progress_test {
namespace {

/// With so many paths of a thousand characters.
config::Deck with_files(int count) {
  config::Deck deck = config::deck_of();
  for (int i = 0; i < count; ++i)
    deck.data.train.push_back(fmt::format("/{}/{}.bin", std::string(1000, 'a'), i));
  return deck;
}

std::string refusal(const config::Deck& deck) {
  try {
    require_readable_metadata(deck, {});
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Metadata, HoldsADeckLargerThanAUsersMayBe) {
  const config::Deck deck = with_files(1'200);
  EXPECT_EQ(refusal(deck), "");
  const nlohmann::json metadata = to_metadata({}, deck, {}, "1.0.0");
  EXPECT_GT(metadata.at("deck").get<std::string>().size(), 1u << 20);
  EXPECT_EQ(deck_of(metadata, "step_1").data.train, deck.data.train);
}

TEST(Metadata, ThatCouldNotBeReadIsRefused) {
  const std::string message = refusal(with_files(17'000));
  EXPECT_TRUE(message.starts_with("the deck has 1")) << message;
  EXPECT_TRUE(
      message.ends_with("name the files of data.train and data.validation by patterns, such as "
                        "'folder/*.bin'"))
      << message;
}

/// Every field has a value of its own.
Progress some_progress() {
  Progress p;
  p.step = 70;
  p.samples = 1234;
  p.optimizer_steps = 65;
  p.loss_scaler = {.scale = 4096, .good_steps = 17, .hysteresis_left = 2};
  p.skipped_in_a_row = 3;
  p.evaluation_failed = true;
  p.proven_step = 60;
  p.best_validation_loss = 2.5;
  p.best_step = 50;
  p.evaluations_without_improvement = 2;
  p.course.from = 1200;
  p.course.sources = {{"held out", {{{"a.bin"}, 40, 7, 0}, {{"b.bin", "c.bin"}, 9, 8, 33}}, 5, 2, 1}};
  p.earlier = {.steps = 20, .samples = 80, .tokens = 2560, .epochs = 0.25};
  p.run_steps = 400;
  p.products = {"fp32", "bf16x6"};
  p.processor = "AVX2";
  return p;
}

TEST(Metadata, GivesBackWhatARunHasDone) {
  const config::Deck deck = config::deck_of();
  const Progress p = some_progress();
  const Restored read = from_metadata(to_metadata(p, deck, {}, "1.0.0"), deck, {}, "step_70");
  EXPECT_EQ(read.note, "");
  const Progress& q = read.progress;
  EXPECT_EQ(q.step, p.step);
  EXPECT_EQ(q.samples, p.samples);
  EXPECT_EQ(q.optimizer_steps, p.optimizer_steps);
  EXPECT_EQ(q.loss_scaler.scale, p.loss_scaler.scale);
  EXPECT_EQ(q.loss_scaler.good_steps, p.loss_scaler.good_steps);
  EXPECT_EQ(q.loss_scaler.hysteresis_left, p.loss_scaler.hysteresis_left);
  EXPECT_EQ(q.skipped_in_a_row, p.skipped_in_a_row);
  EXPECT_EQ(q.evaluation_failed, p.evaluation_failed);
  EXPECT_EQ(q.proven_step, p.proven_step);
  EXPECT_EQ(q.best_validation_loss, p.best_validation_loss);
  EXPECT_EQ(q.best_step, p.best_step);
  EXPECT_EQ(q.evaluations_without_improvement, p.evaluations_without_improvement);
  EXPECT_EQ(to_json(q.course), to_json(p.course));
  EXPECT_EQ(q.course.sources.at(0).parts.at(1).files, (std::vector<std::string>{"b.bin", "c.bin"}));
  EXPECT_EQ(to_json(q.earlier), to_json(p.earlier));
  EXPECT_EQ(q.run_steps, p.run_steps);
  EXPECT_EQ(q.products.bf16, p.products.bf16);
  EXPECT_EQ(q.products.fp32, p.products.fp32);
  EXPECT_EQ(q.processor, p.processor);
}

TEST(Metadata, GivesBackTheFirstSkippedStep) {
  const config::Deck deck = config::deck_of();
  Progress p = some_progress();
  for (const int skipped : {0, 1}) {
    p.skipped_in_a_row = skipped;
    EXPECT_EQ(from_metadata(to_metadata(p, deck, {}, "1.0.0"), deck, {}, "step_70").progress.skipped_in_a_row,
              skipped);
  }
}

TEST(Products, AResumedRunSaysWhichAreOthers) {
  EXPECT_EQ(note_of({"fp32", "bf16x6"}, {"fp32", "bf16x6"}), "");
  EXPECT_EQ(note_of({"native", ""}, {"native", ""}), "");
  EXPECT_EQ(note_of({"", ""}, {"", ""}), "") << "GPUs, and fp64";
  const std::string of_bf16 = note_of({"fp32", "native"}, {"native", ""});
  EXPECT_EQ(
      of_bf16,
      "products of bf16 matrices were \"fp32\" and are \"native\" now, so that losses differ in the last "
      "bits from those of a run without this break: device.bf16_products = \"fp32\" goes on as before, on "
      "processors that have it\n");
  const std::string of_fp32 = note_of({"", "bf16x6"}, {"", "native"});
  EXPECT_EQ(of_fp32,
            "products of fp32 matrices were \"bf16x6\" and are \"native\" now, so that losses differ in the "
            "last bits from those of a run without this break: device.fp32_products = \"bf16x6\" goes on as "
            "before, on processors that have it\n");
  EXPECT_EQ(note_of({"fp32", "bf16x6"}, {"fp32", "native"}), of_fp32) << "panels are multiplied that way too";
  // Of checkpoints without a record.
  const std::string from_native = note_of({"", "native"}, {"", "bf16x6"});
  EXPECT_NE(from_native, "");
  EXPECT_EQ(note_of({"", ""}, {"", "bf16x6"}), from_native);
  EXPECT_EQ(note_of({"fp32", ""}, {"fp32", "bf16x6"}), from_native);
  EXPECT_EQ(note_of({"", ""}, {"", "native"}), "");
}

TEST(Processor, AResumedRunSaysWhereItIsAnother) {
  EXPECT_EQ(note_of_processor("AVX2", "AVX2"), "");
  EXPECT_EQ(note_of_processor("", "AVX2"), "") << "of a checkpoint without a record";
  const std::string forged = note_of_processor("AVX2\nstep 7: loss 0" + std::string(5000, 'x'), "AVX2");
  EXPECT_EQ(std::ranges::count(forged, '\n'), 1) << forged;
  EXPECT_LT(forged.size(), 500u);
  EXPECT_EQ(note_of_processor("AVX2", "AVX-512"),
            "the run computed by \"AVX2\" and computes by \"AVX-512\" now, so that losses may differ in the "
            "last bits from those of a run without this break\n");
}

TEST(Products, AreRecordedWhereTheyFormTheModels) {
  using namespace kernels;
  GemmLibrary library;
  const auto ways = [&](DType parameters, Bf16Products bf16, Fp32Products fp32) {
    library.bf16 = bf16;
    library.fp32 = fp32;
    const ProductWays w = ways_of(library, parameters);
    return w.bf16 + "," + w.fp32;
  };
  EXPECT_EQ(ways_of(library, DType::f32).fp32, "") << "nothing is chosen";
  for (const DType wide : {DType::f32, DType::f16}) {
    EXPECT_EQ(ways(wide, Bf16Products::native, Fp32Products::split), ",bf16x6");
    EXPECT_EQ(ways(wide, Bf16Products::widened, Fp32Products::native), ",native");
  }
  EXPECT_EQ(ways(DType::bf16, Bf16Products::native, Fp32Products::split), "native,");
  EXPECT_EQ(ways(DType::bf16, Bf16Products::widened, Fp32Products::split), "fp32,bf16x6");
  EXPECT_EQ(ways(DType::bf16, Bf16Products::widened, Fp32Products::native), "fp32,native");
  EXPECT_EQ(ways(DType::f64, Bf16Products::native, Fp32Products::split), ",");
}

TEST(Metadata, TheBestLossStartsAnewWithOtherValidationData) {
  const config::Deck deck = config::deck_of();
  data::Identity before, now;
  before.validation = now.validation = {{"chat", 5}};
  nlohmann::json metadata = to_metadata(some_progress(), deck, before, "1.0.0");
  EXPECT_EQ(from_metadata(metadata, deck, now, "step_70").progress.best_validation_loss, 2.5);
  now.validation = {{"chat", 6}};
  const Restored read = from_metadata(metadata, deck, now, "step_70");
  EXPECT_TRUE(std::isinf(read.progress.best_validation_loss));
  EXPECT_NE(read.note.find("chat has changed"), std::string::npos) << read.note;
  metadata["deck"] = "\u202e";
  const std::string damaged = test::error_of([&] { from_metadata(metadata, deck, now, "step_70"); });
  EXPECT_EQ(damaged.rfind("step_70/deck:1: not valid TOML", 0), 0u) << damaged;
}

TEST(Metadata, TheBestLossStartsAnewWithOtherRowsOfTheSameData) {
  config::Deck deck = config::on_ranks("[evaluation]\ninterval = 1\nbatches = 2\n", 4);
  data::Identity data;
  data.validation = {{"chat", 5}};
  data.validation_rows = {30};
  const nlohmann::json metadata = to_metadata(some_progress(), deck, data, "1.0.0");
  EXPECT_EQ(from_metadata(metadata, deck, data, "step_70").progress.best_step, 50);
  deck.batch.micro = 2;  // 16 rows, of 8 before
  deck.checkpoint.keep_best = 1;
  const Restored read = from_metadata(metadata, deck, data, "step_70");
  EXPECT_EQ(read.progress.best_step, -1);
  EXPECT_EQ(read.progress.evaluations_without_improvement, 0);
  EXPECT_NE(read.note.find("evaluations read other rows"), std::string::npos) << read.note;
  EXPECT_NE(read.note.find("the lowest loss was that of step 50) stays"), std::string::npos) << read.note;
}

TEST(Metadata, AnotherStartingPointIsTold) {
  config::Deck deck = config::deck_of();
  const nlohmann::json metadata = to_metadata(some_progress(), deck, {}, "1.0.0");
  deck.model.from = "other";
  EXPECT_NE(from_metadata(metadata, deck, {}, "step_70").note.find("model.from = \"other\" has no effect"),
            std::string::npos);
}

TEST(Metadata, OtherDataGoOnWhereTheDeckSaysSo) {
  config::Deck deck = config::deck_of();
  data::Identity data;
  const nlohmann::json metadata = to_metadata(some_progress(), deck, data, "1.0.0");
  data.train = 9;
  data.chat_template = "cafe";
  const std::string refused = test::error_of([&] { from_metadata(metadata, deck, data, "step_70"); });
  EXPECT_NE(refused.find("checkpoint.override = [\"data.*\"]"), std::string::npos) << refused;
  deck.checkpoint.changes = {"data.train"};
  EXPECT_TRUE(from_metadata(metadata, deck, data, "step_70").other_data);
}

TEST(Metadata, ACourseThatContradictsItselfIsRefused) {
  const config::Deck deck = config::deck_of();
  const nlohmann::json metadata = to_metadata(some_progress(), deck, {}, "1.0.0");
  for (const auto& [path, value] : {std::pair{"/course/sources/0/parts/1/from", -1},
                                    {"/course/sources/0/parts/0/from", 34},
                                    {"/course/sources/0/parts/0/rows", 0},
                                    {"/course/from", 1235}}) {
    nlohmann::json damaged = metadata;
    damaged[nlohmann::json::json_pointer(path)] = value;
    EXPECT_NE(test::error_of([&] { from_metadata(damaged, deck, {}, "step_70"); }).find("damaged"),
              std::string::npos)
        << path;
  }
}

TEST(Metadata, AnotherMeshIsTold) {
  const config::Deck before = config::on_ranks("", 4);
  config::Deck now = before;
  const nlohmann::json metadata = to_metadata(some_progress(), before, {}, "1.0.0");
  EXPECT_EQ(from_metadata(metadata, now, {}, "step_70").note, "");
  now.mesh.shard = 2;
  EXPECT_EQ(from_metadata(metadata, now, {}, "step_70").note,
            "step_70 was written on mesh 1 x 1 x 4 x 1 x 1, and is read on mesh 1 x 1 x 2 x 1 x 1 now\n");
  now = before;
  now.mesh.per_node = 2;
  EXPECT_EQ(from_metadata(metadata, now, {}, "step_70").note, "") << "all is in fp32";
  now.precision.reduce = DType::bf16;
  const config::Deck reduced = now;
  now.mesh.per_node = 4;
  EXPECT_EQ(from_metadata(to_metadata(some_progress(), reduced, {}, "1.0.0"), now, {}, "step_70").note,
            "step_70 was written with 2 ranks on a node, and there are 4 now: sums of 16-bit elements over "
            "several nodes differ in the last bits; cluster.ranks_per_node = 2 goes on as before\n");
}

TEST(Metadata, WhatMayNotChangeIsToldWithEachWayOut) {
  config::Deck deck = config::deck_of();
  const nlohmann::json metadata = to_metadata(some_progress(), deck, {}, "1.0.0");
  deck.optimizer.lr *= 2;
  const std::string refused = test::error_of([&] { from_metadata(metadata, deck, {}, "step_70"); });
  EXPECT_TRUE(
      refused.ends_with(" now\nset these keys back; or go on with them: checkpoint.override = "
                        "[\"optimizer.lr\"]; or keep only its weights, in a run of its own: "
                        "model.from = \"step_70\" and "
                        "another run.output; or start anew: checkpoint.resume = \"none\""))
      << refused;
}

/// Versions before wrote no hash of the ends, and their checkpoints go on.
TEST(Metadata, KnowsTheEndsOfTheFiles) {
  data::Identity now, other;
  other.ends = 7;
  nlohmann::json metadata{{"data", to_json(now)}};
  EXPECT_EQ(compare_data(metadata, now, "step_1"), "");
  EXPECT_EQ(test::error_of([&] {
              compare_data(metadata, other, "step_1");
            }).find("data.train is not what step_1 was trained on"),
            0u);
  metadata["data"].erase("ends");
  EXPECT_EQ(compare_data(metadata, other, "step_1"), "");
}

}  // namespace
}  // namespace ztrain::job::progress_test
