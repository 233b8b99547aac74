// What rank 0 tells of a run whose parts last: a clock runs a thousand times as fast as the machine's.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

#include "config/text/load.hpp"
#include "runtime/device/device.hpp"
#include "telemetry/console.hpp"
#include "tests/support/folder_of_ranks.hpp"
#include "train/trainer.hpp"

namespace ztrain::phases_test {

namespace {

config::Deck deck_in(const test::FolderOfRanks& folder) {
  if (test::session().rank() == 0) {
    std::ofstream file(folder.file("text"));
    for (int i = 0; i < 20000; ++i) file << "some text " << i % 97 << '\n';
  }
  test::session().barrier();
  return config::parse_deck(
      "[run]\nsteps = 3\noutput = '" + folder.file("out") + "'\n[data]\ntrain = ['" + folder.file("text") +
          "']\nsequence = 256\n[model]\nhidden_size = 128\nintermediate_size = 352\nnum_hidden_layers = 4\n"
          "num_attention_heads = 4\nvocab_size = 257\n[batch]\nglobal = 8\nmicro = 2\n[optimizer]\nlr = "
          "1e-3\n"
          "[precision]\npreset = 'fp32'\n[evaluation]\ninterval = 3\nbatches = 4\n",
      folder.file("deck.toml"), {});
}

/// What was written to a file without a name.
std::string text_of(std::FILE* file) {
  std::rewind(file);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  return text;
}

TEST(Phases, AStepThatLastsSaysWhereItIs) {
  if (runtime::built_for_gpus()) GTEST_SKIP() << "a GPU is through with these steps before anybody asks";
  const test::FolderOfRanks folder;
  telemetry::Outlet outlet;
  outlet.lines = std::tmpfile();
  outlet.progress = std::tmpfile();
  ASSERT_TRUE(outlet.lines != nullptr && outlet.progress != nullptr);
  outlet.longest = outlet.first;
  outlet.between_looks = 1e-3;
  outlet.now = [] {
    return 1000 * std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  {
    telemetry::Console console(outlet), silent;
    const telemetry::ConsoleThread thread(console);
    telemetry::Watchdog watchdog(0);
    train::Trainer(test::session(), test::session().rank() == 0 ? console : silent, watchdog, deck_in(folder),
                   "0")
        .run();
  }
  const std::string told = text_of(outlet.progress), lines = text_of(outlet.lines);
  std::fclose(outlet.lines);
  std::fclose(outlet.progress);
  if (test::session().rank() != 0) {
    EXPECT_EQ(told + lines, "");
    return;
  }
  const std::string seconds = R"((\d+ s|\d+m \d\ds))";
  const std::regex step(
      R"((^|\n)step [123]: op \d+ of \d+, (forward|backward) model\.layers\.[0-3] micro [0-3], )" + seconds +
      "\n");
  EXPECT_TRUE(std::regex_search(told, step)) << told;
  // Whatever lasted, each line is one phase with its time.
  const std::regex line("[a-z][^\n]*, " + seconds);
  std::istringstream all(told);
  for (std::string one; std::getline(all, one);) EXPECT_TRUE(std::regex_match(one, line)) << one;
  EXPECT_NE(lines.find("3/3"), std::string::npos) << lines;
}

}  // namespace
}  // namespace ztrain::phases_test
