// What a run reads and writes: no key may name what another one has written.
#include "train/run_files.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "config/text/load.hpp"
#include "tests/support/error_of.hpp"

namespace ztrain::run_files_test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

class RunFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ztrain-files-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = fs::canonical(name);
    for (const char* file : {"text.txt", "run/deck.resolved.toml", "run/metrics.jsonl", "run/notes.txt",
                             "run/checkpoints/step_5/a.txt", "run/checkpoints/notes.txt", "shared/.lock"}) {
      fs::create_directories((folder_ / file).parent_path());
      std::ofstream(folder_ / file) << "text";
    }
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  /// Of a run into run/ that reads text.txt, and what else the words say; FOLDER stands for the folder.
  std::string error(Words words, const std::string& deck = "deck.toml") const {
    words.insert(words.begin(), {"--run.output=FOLDER/run", "--data.train=FOLDER/text.txt"});
    for (std::string& word : words) word = std::regex_replace(word, std::regex("FOLDER"), folder_.string());
    return test::error_of([&] {
      train::require_apart(config::parse_deck("[batch]\nglobal = 1\n[run]\nsteps = 1\n", at(deck), words));
    });
  }

  fs::path folder_;
};

TEST_F(RunFiles, WhatIsReadIsNotWritten) {
  const std::string written = "is where the run writes: give another run.output";
  EXPECT_EQ(error({"--data.train=FOLDER/run/deck.resolved.toml"}),
            "data.train: '" + at("run/deck.resolved.toml") + "' " + written);
  std::ofstream(at("run/timeline.json")) << "text";
  EXPECT_EQ(error({"--data.train=FOLDER/run/timeline.json"}), "no error");
  EXPECT_EQ(error({"--data.train=FOLDER/run/timeline.json", "--metrics.timeline_step=1"}),
            "data.train: '" + at("run/timeline.json") + "' " + written);
  fs::create_symlink(at("run"), at("link"));
  fs::create_hard_link(at("run/metrics.jsonl"), at("same.txt"));
  for (const char* file : {"run/*.toml", "run/m*", "link/deck.resolved.toml", "same.txt"}) {
    const std::string found = error({std::string("--data.validation=FOLDER/") + file});
    EXPECT_EQ(found.find("data.validation: '"), 0u) << found;
    EXPECT_NE(found.find(written), std::string::npos) << found;
  }
  EXPECT_EQ(error({}, "run/metrics.jsonl").find("the deck: '" + at("run/metrics.jsonl") + "' is where"), 0u);
  EXPECT_NE(error({"--checkpoint.folder=FOLDER/shared", "--data.train=FOLDER/shared/.lock"})
                .find("give another checkpoint.folder"),
            std::string::npos);
  for (const char* deck : {"--pipeline.schedule=FOLDER/run/turns.csv", "--pipeline.schedule=1f1b"}) {
    const bool reads = std::string_view(deck).ends_with(".csv");
    std::ofstream(at("run/turns.csv")) << "text";
    const std::string found = error({deck, "--device.algorithms=FOLDER/run/turns.csv"});
    EXPECT_EQ(found.find("pipeline.schedule: '") == 0, reads) << found;
  }
  std::ofstream(at("run/stop")) << "";
  EXPECT_EQ(error({"--data.train=FOLDER/run/stop"}), "data.train: '" + at("run/stop") + "' " + written);
  EXPECT_NE(
      error({"--checkpoint.export=FOLDER/run/save"}).find("run.output: '" + at("run/save") + "' would be"),
      std::string::npos);
  EXPECT_NE(error({"--device.algorithms=FOLDER/text.txt"}).find("give another device.algorithms"),
            std::string::npos);
}

TEST_F(RunFiles, CheckpointsAreMovedAndRemoved) {
  const std::string found = error({"--data.train=FOLDER/run/checkpoints/*/a.txt"});
  EXPECT_NE(found.find("lies in the folder of this run's own checkpoints"), std::string::npos) << found;
  EXPECT_NE(found.find("give another run.output"), std::string::npos) << found;
  EXPECT_EQ(error({"--data.train=FOLDER/run/checkpoints/*/a.txt", "--checkpoint.interval=-1"}), "no error");
}

TEST_F(RunFiles, OtherFilesInFoldersOfARunAreFine) {
  EXPECT_EQ(error({}), "no error");
  EXPECT_EQ(error({}, "run/deck.resolved.toml"), "no error") << "its own deck, with which a run goes on";
  EXPECT_EQ(
      error({"--data.train=FOLDER/run/notes.txt", "--data.validation=FOLDER/run/checkpoints/notes.txt"}),
      "no error");
  EXPECT_EQ(error({"--checkpoint.folder=FOLDER/run", "--checkpoint.export=FOLDER/run/model"}), "no error");
  EXPECT_EQ(error({"--checkpoint.export=FOLDER/run/checkpoints/model"}), "no error");
  EXPECT_EQ(error({"--checkpoint.export=run"}), "no error") << "of the working folder";
  EXPECT_EQ(error({"--checkpoint.export=FOLDER", "--run.output=/nowhere/run"}), "no error")
      << "that it exists is told before an export";
}

/// What the system refuses is told before a run: as a user that may write nowhere here.
TEST_F(RunFiles, PlacesThatCannotBeWritten) {
  const auto error = [&](const std::string& key, const std::string& place) {
    const Words words{"--run.output=" + at("run"), "--data.train=" + at("text.txt"),
                      "--" + key + "=" + place};
    return test::error_of([&] {
      train::require_writable(
          config::parse_deck("[batch]\nglobal = 1\n[run]\nsteps = 1\n", at("a.toml"), words));
    });
  };
  for (const std::string key : {"run.output", "checkpoint.folder", "checkpoint.export"}) {
    EXPECT_EQ(error(key, at("new/deep/er")), "no error");
    EXPECT_EQ(error(key, at("text.txt/deep/er")).find(key + ": the run would write '" + at("text.txt/deep")),
              0u);
    EXPECT_NE(
        error(key, at("text.txt/deep/er")).find("but '" + at("text.txt") + "' is no folder; give another"),
        std::string::npos);
  }
  EXPECT_EQ(error("device.algorithms", at("run")), "device.algorithms: the run would write '" + at("run") +
                                                       "', but '" + at("run") +
                                                       "' is no file; give another device.algorithms");
  fs::create_directory(at("old")), fs::create_directory(at("old/metrics.jsonl"));
  EXPECT_NE(error("run.output", at("old")).find("metrics.jsonl' is no file"), std::string::npos);
  fs::permissions(folder_, fs::perms{0555});
  const bool root = ::geteuid() == 0 && ::seteuid(65534) == 0;
  EXPECT_EQ(error("run.output", at("new/run"))
                .find("run.output: the run would write '" + at("new/run") + "', but '" + folder_.string() +
                      "' cannot be written: Permission denied; "),
            0u);
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  fs::permissions(folder_, fs::perms{0755});
}

TEST_F(RunFiles, AnExportIsInNobodysWay) {
  for (const char* place :
       {"run", "run/", "new/../run", "run/checkpoints", "run/checkpoints/step_7",
        "run/checkpoints/step_7.tmp/model", "run/metrics.jsonl", "run/deck.resolved.toml/model"}) {
    const std::string found = error({std::string("--checkpoint.export=FOLDER/") + place});
    EXPECT_NE(found.find("would be in the way of"), std::string::npos) << place << ": " << found;
    EXPECT_NE(found.find("run.output"), std::string::npos) << found;
    EXPECT_NE(found.find("checkpoint.export"), std::string::npos) << found;
  }
  EXPECT_NE(error({"--run.output=FOLDER/runs/one", "--checkpoint.export=FOLDER/runs"}).find("run.output"),
            std::string::npos);
  EXPECT_NE(
      error({"--checkpoint.folder=FOLDER/new", "--checkpoint.export=FOLDER/new"}).find("checkpoint.folder"),
      std::string::npos);
  EXPECT_NE(error({"--checkpoint.folder=FOLDER/new.tmp", "--checkpoint.export=FOLDER/new"}).find("new.tmp"),
            std::string::npos);
  EXPECT_NE(error({"--checkpoint.folder=FOLDER/run/metrics.jsonl"}).find("checkpoint.folder"),
            std::string::npos);
}

}  // namespace
}  // namespace ztrain::run_files_test
