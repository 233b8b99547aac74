#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "telemetry/console.hpp"
#include "telemetry/metrics_file.hpp"
#include "telemetry/step_line.hpp"
#include "telemetry/watchdog.hpp"
#include "tests/support/error_of.hpp"

namespace ztrain::telemetry_test {

using namespace ztrain::telemetry;
namespace fs = std::filesystem;
using test::error_of;

namespace {

class Metrics : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ztrain-metrics-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { fs::remove_all(folder); }

  std::vector<nlohmann::json> lines(const char* file = "metrics.jsonl") const {
    std::ifstream in(folder / file);
    std::vector<nlohmann::json> all;
    for (std::string line; std::getline(in, line);) all.push_back(parse_json(line));
    return all;
  }
  std::vector<int> steps() const {
    std::vector<int> all;
    for (const auto& line : lines()) all.push_back(line["step"].get<int>());
    return all;
  }
  void write_steps(MetricsFile& file, int from, int to) const {
    for (int s = from; s <= to; ++s) {
      StepRecord record;
      record.step = s;
      file.write(record);
    }
  }

  fs::path folder;
};

TEST_F(Metrics, NumbersRoundTrip) {
  StepRecord r;
  r.step = 3;
  r.loss = 10.0 / 3.0;
  r.grad_norm = 1e-310;  // subnormal
  r.lr = 0.1 + 0.2;
  r.tokens = (std::int64_t{1} << 60) + 1;
  r.tokens_per_s = std::numeric_limits<double>::infinity();
  r.mfu = std::nan("");
  r.seconds.forward = 0.0;
  r.seconds.exposed_communication = 0.25;
  r.seconds.total = 1.5;
  r.bytes_sent = {{"shard", 123456789012345}, {"shard*context", 0}};
  r.peak_bytes = 77;
  MetricsFile(folder.string(), std::nullopt).write(r);
  const auto line = lines().at(0);
  EXPECT_EQ(line["step"], 3);
  EXPECT_EQ(line["loss"].get<double>(), r.loss);
  EXPECT_EQ(line["grad_norm"].get<double>(), r.grad_norm);
  EXPECT_EQ(line["lr"].get<double>(), r.lr);
  EXPECT_EQ(line["tokens"].get<std::int64_t>(), r.tokens);
  EXPECT_TRUE(line["tokens_per_s"].is_null());
  EXPECT_TRUE(line["mfu"].is_null());
  EXPECT_EQ(line["seconds"].size(), 5u) << "what was not timed is left out";
  EXPECT_EQ(line["seconds"]["forward"], 0.0);
  EXPECT_EQ(line["seconds"]["exposed_communication"], 0.25);
  EXPECT_EQ(line["seconds"]["total"], 1.5);
  EXPECT_EQ(line["bytes_sent"]["shard"], 123456789012345);
  EXPECT_EQ(line["bytes_sent"]["shard*context"], 0);
  EXPECT_EQ(line["peak_bytes"], 77);
}

TEST_F(Metrics, ResumingDropsLaterSteps) {
  {
    MetricsFile file(folder.string(), std::nullopt);
    write_steps(file, 1, 5);
    file.write(EvaluationRecord{4, 2.5});
    file.write(EvaluationRecord{5, 2.4, {{"chat", 2.0}, {"law", 3.0}}});
    EXPECT_EQ(json_text(lines()[6]["validation_losses"]), R"({"chat":2.0,"law":3.0})");
  }
  MetricsFile file(folder.string(), 4);
  EXPECT_EQ(steps(), (std::vector<int>{1, 2, 3, 4, 4}));
  write_steps(file, 5, 6);
  EXPECT_EQ(steps(), (std::vector<int>{1, 2, 3, 4, 4, 5, 6}));
  EXPECT_EQ(lines()[4]["validation_loss"], 2.5);
  EXPECT_FALSE(lines()[4].contains("validation_losses"));
  EXPECT_FALSE(fs::exists(folder / "metrics.jsonl.tmp"));
}

TEST_F(Metrics, ACutLastLineIsDropped) {
  {
    MetricsFile file(folder.string(), std::nullopt);
    write_steps(file, 1, 3);
  }
  const auto whole = fs::file_size(folder / "metrics.jsonl");
  fs::resize_file(folder / "metrics.jsonl", whole - 1);  // all but the newline
  EXPECT_NO_THROW(MetricsFile(folder.string(), 9));
  EXPECT_EQ(steps(), (std::vector<int>{1, 2}));
  std::ofstream(folder / "metrics.jsonl", std::ios::app) << "{\"step\": 3, \"lo";
  MetricsFile file(folder.string(), 9);
  write_steps(file, 3, 3);
  EXPECT_EQ(steps(), (std::vector<int>{1, 2, 3}));
}

TEST_F(Metrics, AFileThatIsRemovedIsMadeAgainWithAllItsLines) {
  const fs::path output = folder / "run";
  fs::create_directory(output);
  MetricsFile file(output.string(), std::nullopt);
  const auto write = [&](int step) {
    StepRecord record;
    record.step = step;
    return file.write(record);
  };
  EXPECT_EQ(write(1) + write(2), "");
  fs::remove_all(output);
  fs::create_directory(output);
  EXPECT_NE(write(3).find("metrics.jsonl was removed"), std::string::npos);
  EXPECT_EQ(write(4), "") << "it is said once";
  EXPECT_EQ(lines("run/metrics.jsonl").size(), 4u);
  fs::rename(output / "metrics.jsonl", output / "elsewhere");
  std::ofstream(output / "metrics.jsonl") << R"({"step":0})" << std::endl;
  EXPECT_NE(write(5).find("is another file than before"), std::string::npos);
  EXPECT_EQ(write(6), "");
  EXPECT_EQ(lines("run/metrics.jsonl").size(), 3u);
  EXPECT_EQ(lines("run/elsewhere").size(), 4u);
}

TEST_F(Metrics, ASymbolicLinkIsNotWrittenThrough) {
  std::ofstream(folder / "target") << "precious";
  fs::create_symlink(folder / "target", folder / "metrics.jsonl.tmp");
  std::ofstream(folder / "metrics.jsonl") << R"({"step":1})" << std::endl;
  EXPECT_NE(error_of([&] { MetricsFile(folder.string(), 1); }).find("is a symbolic link"), std::string::npos);
  EXPECT_EQ(fs::file_size(folder / "target"), 8u);
}

TEST_F(Metrics, ResumingWithoutAFileBegins) {
  MetricsFile file(folder.string(), 7);
  write_steps(file, 8, 8);
  EXPECT_EQ(steps(), std::vector<int>{8});
}

TEST_F(Metrics, FreshRunsKeepTheEarlierOnes) {
  const char* kept[] = {"", "metrics.previous.jsonl", "metrics.previous-2.jsonl"};
  for (int run = 0; run < 3; ++run) {
    MetricsFile file(folder.string(), std::nullopt);
    EXPECT_EQ(file.previous(), run == 0 ? "" : (folder / kept[run]).string());
    write_steps(file, 1, run + 1);
  }
  EXPECT_EQ(steps(), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(lines(kept[1]).size(), 1u);
  EXPECT_EQ(lines(kept[2]).size(), 2u);
}

TEST_F(Metrics, FailuresNameTheKey) {
  const std::string missing = error_of([&] { MetricsFile((folder / "none").string(), std::nullopt); });
  EXPECT_EQ(missing.find("run.output: cannot write"), 0u) << missing;
}

TEST_F(Metrics, AFullDiskNamesTheKey) {
  // Writes beyond the limit on a file's size fail as those on a full disk do.
  const std::string message = error_of([&] {
    MetricsFile file(folder.string(), std::nullopt);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    rlimit small = before;
    small.rlim_cur = 4096;
    setrlimit(RLIMIT_FSIZE, &small);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const std::string inner = error_of([&] { write_steps(file, 1, 100); });
    std::signal(SIGXFSZ, handler);
    setrlimit(RLIMIT_FSIZE, &before);
    fail("{}", inner);
  });
  EXPECT_EQ(message.find("run.output: cannot write"), 0u) << message;
  EXPECT_NO_THROW(MetricsFile(folder.string(), 1000)) << "the cut line does not stop a resumed run";
  EXPECT_GT(steps().size(), 3u);
}

TEST(Console, LineAndHeaderAlign) {
  StepLine line;
  line.step = 120;
  line.steps = 1000;
  line.loss = 3.14159;
  line.grad_norm = 1.25;
  line.lr = 3e-4;
  line.memory_bytes = 6.0 * (1 << 30);
  line.memory_limit = 8.0 * (1 << 30);
  line.tokens_per_s = 123456;
  line.tflops = 0.51;
  line.mfu = 0.4213;
  line.data_share = 0.01;
  line.exposed_share = 0.125;
  line.seconds_left = 3720;
  const std::string text = step_line(line);
  for (const char* part : {"120/1000", "3.1416", "1.25", "3.00e-04", "6.00 GiB (75%)", "123456", "0.51",
                           "42.1%", "1.0%", "12.5%", "1h 02m"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  EXPECT_EQ(text.size(), step_header().size());
  // Each name ends where its values end.
  EXPECT_EQ(step_header().find("loss") + 4, text.find("3.1416") + 6);
  EXPECT_EQ(step_header().find("mfu") + 3, text.find("42.1%") + 5);
  line.copied_share = 0.25;
  line.drives_share = 0.0625;
  const std::string offload = step_line(line);
  EXPECT_TRUE(offload.starts_with(text));
  EXPECT_EQ(offload.size(), step_header({.offload = true}).size());
  EXPECT_EQ(step_header({.offload = true}).find("tier-copies") + 11, offload.find("25.0%") + 5);
  EXPECT_EQ(step_header({.offload = true}).find("nvme-wait") + 9, offload.find("6.2%") + 4);
}

TEST(Console, UnknownFiguresAreDashes) {
  StepLine line;
  line.mfu = line.tflops = line.seconds_left = std::nan("");
  const std::string text = step_line(line);
  EXPECT_EQ(text.find("nan"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '-'), 3) << text;
}

TEST(Console, TablesAlign) {
  Table table({"what", "bytes"});
  table.row({"parameters", "12"});
  table.rule();
  table.row({"sum", "12345678"});
  EXPECT_EQ(table.text(2),
            "  what           bytes\n"
            "  --------------------\n"
            "  parameters        12\n"
            "  --------------------\n"
            "  sum         12345678\n");
  EXPECT_THROW(table.row({"a", "b", "c"}), Error);
}

TEST(WatchdogDeathTest, NamesTheRankAndTheOpAndExits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Watchdog watchdog(0.2);
        watchdog.set_name("rank 3 (node7)");
        watchdog.beat("reading the batch");
        const Watchdog::Detail detail(watchdog, [] { return std::string("reduce model.layers.3"); });
        std::this_thread::sleep_for(std::chrono::seconds(60));
      },
      testing::ExitedWithCode(1),
      "rank 3 \\(node7\\): no progress for 0.2 s \\(watchdog.timeout\\); waiting in: reading the batch "
      "\\(reduce "
      "model.layers.3\\)");
}

TEST(Watchdog, ActsOnceAndOnlyWithoutBeats) {
  std::atomic<int> calls{0};
  {
    Watchdog watchdog(2, [&](const std::string&) { ++calls; });
    for (int i = 0; i < 25; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      watchdog.beat(std::string(1000, 'x'));  // longer than it keeps
    }
    EXPECT_EQ(calls, 0);
    for (int i = 0; i < 300 && calls == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(calls, 1);
}

/// As Ctrl-Z and `scontrol suspend` do it.
TEST(Watchdog, AProcessThatWasStoppedDoesNotHang) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Watchdog watchdog(1.5, [](const std::string&) { std::_Exit(3); });
    for (int i = 0; i < 60; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      watchdog.beat("computing");
      // Alive, but later than the one that watches.
      if (i == 10) ::raise(SIGSTOP), std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    std::_Exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  std::this_thread::sleep_for(std::chrono::seconds(3));
  ::kill(child, SIGCONT);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

/// What the action uses may go with who had set it.
TEST(Watchdog, AnotherActionWaitsForTheOneUnderWay) {
  std::atomic<bool> begun = false, over = false;
  Watchdog watchdog(0.1, [&](const std::string&) {
    begun = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    over = true;
  });
  while (!begun) std::this_thread::yield();
  watchdog.set_action([](const std::string&) {});
  EXPECT_TRUE(over);
}

TEST(Watchdog, OffWatchesNothing) {
  std::atomic<int> calls{0};
  {
    Watchdog watchdog(0, [&](const std::string&) { ++calls; });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(calls, 0);
    watchdog.set_timeout(0.01);
    for (int i = 0; i < 300 && calls == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(calls, 1) << "until a deck says otherwise";
}

/// A console's phases are progress, on every rank.
TEST(Watchdog, IsToldOfPhases) {
  std::string told;
  {
    std::atomic<bool> over{false};
    Watchdog watchdog(1, [&](const std::string& message) { told = message, over = true; });
    Console silent(&watchdog);
    const Phase outer(silent, "preparing");
    {
      Phase phase(silent, "reading the weights");
      for (int i = 0; i < 15; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        phase.at("more of them");
      }
    }
    EXPECT_FALSE(over);
    for (int i = 0; i < 300 && !over; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(told.ends_with("waiting in: preparing")) << told;
}

}  // namespace
}  // namespace ztrain::telemetry_test
