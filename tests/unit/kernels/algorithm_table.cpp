// The choice of a product's algorithm by measuring, with a timer that says what it is told, and the table
// that keeps it.

#include "kernels/gemm/algorithm_table.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/error.hpp"

namespace ztrain::kernels::algorithm_table_test {
namespace {

Algorithm algorithm(int number, double microseconds = 1.5) {
  Algorithm a{{}, microseconds};
  for (std::size_t i = 0; i < a.bytes.size(); ++i)
    a.bytes[i] = static_cast<std::uint8_t>(number * 37 + 5 * i);
  return a;
}

Candidate candidate(int number, std::int64_t workspace = 0) {
  return {algorithm(number).bytes, workspace};
}

/// times[i]: what the candidate `i` takes, one after the other; the last one for ever. None: does not run.
class ToldTimer : public CandidateTimer {
 public:
  explicit ToldTimer(std::map<int, std::vector<double>> times) : times_(std::move(times)) {}

  std::optional<double> microseconds(const Candidate& candidate) override {
    for (auto& [number, times] : times_) {
      if (algorithm(number).bytes != candidate.bytes) continue;
      const std::size_t call = static_cast<std::size_t>(calls_[number]++);
      if (times.empty()) return std::nullopt;
      return times[std::min(call, times.size() - 1)];
    }
    ADD_FAILURE() << "an unknown candidate was run";
    return std::nullopt;
  }
  int calls(int number) { return calls_[number]; }

 private:
  std::map<int, std::vector<double>> times_;
  std::map<int, int> calls_;
};

/// The number of the candidate chosen out of 0 .. n-1; -1: none.
int chosen(ToldTimer& timer, const std::vector<Candidate>& candidates, std::int64_t workspace = 100) {
  const auto best = fastest(candidates, workspace, timer);
  for (int i = 0; best && i < static_cast<int>(candidates.size()); ++i)
    if (candidates[static_cast<std::size_t>(i)].bytes == best->bytes) return i;
  return -1;
}

TEST(AlgorithmChoice, TakesTheLeastMedian) {
  ToldTimer timer({{0, {5, 5, 5}}, {1, {9, 4, 4, 4, 9}}, {2, {3, 6, 6, 6, 3}}});
  const std::vector<Candidate> all{candidate(0), candidate(1), candidate(2)};
  EXPECT_EQ(chosen(timer, all), 0) << "the second one was dropped after its first round";
  ToldTimer closer({{0, {5, 5, 5}}, {1, {6, 4, 4, 4, 9}}, {2, {3.1, 6, 6, 6, 3.1}}});
  EXPECT_EQ(chosen(closer, all), 1);
  EXPECT_EQ(closer.calls(0), candidate_rounds);
  ToldTimer again({{0, {5, 5, 5}}, {1, {6, 4, 4, 4, 9}}, {2, {3.1, 6, 6, 6, 3.1}}});
  EXPECT_DOUBLE_EQ(fastest(all, 0, again)->microseconds, 4);
}

TEST(AlgorithmChoice, HopelessOnesAreNotMeasuredAgain) {
  ToldTimer timer({{0, {1}}, {1, {2.1}}, {2, {1.9}}});
  EXPECT_EQ(chosen(timer, {candidate(0), candidate(1), candidate(2)}), 0);
  EXPECT_EQ(timer.calls(1), 1);
  EXPECT_EQ(timer.calls(2), candidate_rounds);
}

TEST(AlgorithmChoice, AmongEqualOnesTheFirstProposed) {
  ToldTimer timer({{0, {20}}, {1, {10.1}}, {2, {10}}});
  EXPECT_EQ(chosen(timer, {candidate(0), candidate(1), candidate(2)}), 1);
}

TEST(AlgorithmChoice, WorkspaceAndFailuresExclude) {
  ToldTimer timer({{0, {1}}, {1, {}}, {2, {3, 3, 3}}, {3, {4}}});
  EXPECT_EQ(chosen(timer, {candidate(0, 101), candidate(1), candidate(2, 100), candidate(3)}), 2);
  EXPECT_EQ(timer.calls(0), 0);
  EXPECT_EQ(timer.calls(1), 1);
  EXPECT_EQ(chosen(timer, {candidate(0, 101), candidate(1)}), -1);
  EXPECT_EQ(chosen(timer, {}), -1);
}

/// Finite, of both signs, evenly drawn up to `drawn`, no larger than `largest` when rounded, and so different
/// that many bits change from one to the next.
template <class T>
void expect_random(double drawn, std::size_t kinds, double largest) {
  const std::vector<T> values = tuning_values<T>(1), others = tuning_values<T>(2);
  std::set<double> different;
  double sum = 0, squares = 0, product = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = static_cast<double>(values[i]), other = static_cast<double>(others[i]);
    ASSERT_LE(std::abs(value), largest);
    if (i < 5000) different.insert(value);
    sum += value;
    squares += value * value;
    product += value * other;
  }
  const double n = static_cast<double>(values.size()), deviation = std::sqrt(squares / n);
  EXPECT_GE(different.size(), kinds);
  EXPECT_NEAR(deviation, drawn / std::sqrt(3.0), 0.01 * drawn);
  EXPECT_LT(std::abs(sum), 4 * std::sqrt(n) * deviation);
  EXPECT_LT(std::abs(product), 4 * std::sqrt(n) * deviation * deviation) << "streams are apart";
}

TEST(TuningValues, AreRandomInEveryType) {
  expect_random<double>(0.125, 5000, 0.125);
  expect_random<float>(0.125, 4900, 0.125);
  expect_random<bf16>(0.125, 1000, 0.125);
  expect_random<f16>(0.125, 3000, 0.125);
  expect_random<f8e4m3>(240, 100, 240);
  expect_random<f8e5m2>(240, 50, 256);
}

const AlgorithmHome hopper{"NVIDIA H100 80GB HBM3", 130101, 13000};

TEST(AlgorithmTable, WhatIsInItStays) {
  AlgorithmTable table(hopper);
  EXPECT_FALSE(table.find("bf16 m 1"));
  table.record("bf16 m 1", algorithm(1, 3.25));
  table.record("bf16 m 1", algorithm(2));
  ASSERT_TRUE(table.find("bf16 m 1"));
  EXPECT_EQ(table.find("bf16 m 1")->bytes, algorithm(1).bytes);
  EXPECT_EQ(table.find("bf16 m 1")->microseconds, 3.25);
  EXPECT_EQ(table.size(), 1u);
}

TEST(AlgorithmTable, TextKeepsEveryBit) {
  AlgorithmTable table(hopper);
  for (int i = 0; i < 8; ++i) table.record("key " + std::to_string(i), algorithm(i, 0.1 * i));
  AlgorithmTable other(hopper);
  other.record("key 3", algorithm(9));
  other.merge(table.to_text());
  EXPECT_EQ(other.size(), 8u);
  EXPECT_EQ(other.find("key 3")->bytes, algorithm(9).bytes) << "what was there is not replaced";
  EXPECT_EQ(other.find("key 7")->bytes, algorithm(7).bytes);
  EXPECT_EQ(other.find("key 7")->microseconds, 0.1 * 7);
  AlgorithmTable copy(hopper);
  copy.merge(other.to_text());
  EXPECT_EQ(copy.to_text(), other.to_text());
}

TEST(AlgorithmTable, OtherDevicesAndVersionsAreApart) {
  AlgorithmTable first(hopper);
  first.record("key", algorithm(1));
  for (const AlgorithmHome& home :
       {AlgorithmHome{"NVIDIA A100-SXM4-40GB", 130101, 13000}, AlgorithmHome{hopper.device, 130200, 13000},
        AlgorithmHome{hopper.device, 130101, 13010}}) {
    AlgorithmTable table(home);
    table.merge(first.to_text());
    EXPECT_FALSE(table.find("key"));
    table.record("key", algorithm(2));
    AlgorithmTable back(hopper);
    back.merge(table.to_text());
    EXPECT_EQ(back.find("key")->bytes, algorithm(1).bytes) << "passed on by a table of another home";
  }
}

TEST(AlgorithmTable, BrokenTextsAreLeftOut) {
  AlgorithmTable full(hopper);
  full.record("key", algorithm(1));
  const std::string text = full.to_text();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return changed.replace(at, from.size(), to);
  };
  for (const std::string& broken :
       {std::string(), std::string("{"), std::string("[1, 2]"), std::string("null"),
        text.substr(0, text.size() / 2), with("\"format\": 1", "\"format\": 2"),
        with("\"driver\": 13000", "\"driver\": \"new\""), with("\"microseconds\"", "\"seconds\""),
        with("\"algorithm\": \"", "\"algorithm\": \"0"), with("\"algorithm\": \"2", "\"algorithm\": \"z")}) {
    AlgorithmTable table(hopper);
    table.merge(broken);
    EXPECT_EQ(table.size(), 0u) << broken;
  }
  AlgorithmTable table(hopper);
  table.merge(text);
  EXPECT_EQ(table.size(), 1u);
}

class AlgorithmFile : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("ztrain_algorithms_" + std::to_string(getpid()));
};

TEST_F(AlgorithmFile, GathersWhatJobsFound) {
  const std::string path = folder_ / "new" / "algorithms.json";
  EXPECT_EQ(read_algorithms(path), "");
  AlgorithmTable first(hopper), second(hopper);
  first.record("a", algorithm(1));
  second.record("a", algorithm(2));
  second.record("b", algorithm(3));
  save_algorithms(path, first);
  save_algorithms(path, second);
  AlgorithmTable table(hopper);
  table.merge(read_algorithms(path));
  EXPECT_EQ(table.size(), 2u);
  EXPECT_EQ(table.find("a")->bytes, algorithm(1).bytes);
  EXPECT_EQ(table.find("b")->bytes, algorithm(3).bytes);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ / "new"), {}), 1) << "no partial file";
}

TEST_F(AlgorithmFile, WhoSavesComputesAsWhoReadsItLater) {
  const std::string path = folder_ / "algorithms.json";
  AlgorithmTable first(hopper), second(hopper);
  first.record("a", algorithm(1));
  save_algorithms(path, first);
  second.record("a", algorithm(2));  // by a job that began before the file was there
  second.record("b", algorithm(3));
  save_algorithms(path, second);
  AlgorithmTable read(hopper);
  read.merge(read_algorithms(path));
  for (const char* key : {"a", "b"}) EXPECT_EQ(read.find(key)->bytes, second.find(key)->bytes) << key;
}

TEST_F(AlgorithmFile, WhatWasNotMeasuredStaysOutOfItAndGivesWay) {
  const std::string path = folder_ / "algorithms.json";
  AlgorithmTable table(hopper);
  table.record("a", {algorithm(1).bytes, 0});
  table.record("b", algorithm(2));
  const AlgorithmHome other_home{"NVIDIA H200", 130101, 13000};
  AlgorithmTable other(other_home);
  other.record("c", {algorithm(1).bytes, 0});
  table.merge(other.to_text());
  save_algorithms(path, table);
  EXPECT_EQ(table.size(), 2u) << "the job goes on with it";
  AlgorithmTable of_other(other_home);
  of_other.merge(read_algorithms(path));
  EXPECT_FALSE(of_other.find("c")) << "nor what another device took so";
  AlgorithmTable later(hopper);
  later.merge(read_algorithms(path));
  EXPECT_FALSE(later.find("a")) << "is measured the next time";
  EXPECT_TRUE(later.find("b"));
  AlgorithmTable measured(hopper);
  measured.record("a", algorithm(3));
  table.merge(measured.to_text());
  EXPECT_EQ(table.find("a")->bytes, algorithm(3).bytes);
}

TEST_F(AlgorithmFile, ABrokenOneIsReplaced) {
  const std::string path = folder_ / "algorithms.json";
  std::ofstream(path) << "{\"format\": 1, \"devices\": [";
  AlgorithmTable table(hopper);
  table.record("a", algorithm(1));
  save_algorithms(path, table);
  EXPECT_EQ(read_algorithms(path), table.to_text());
}

TEST_F(AlgorithmFile, AnImpossiblePlaceIsAnError) {
  std::ofstream(folder_ / "file") << "not a folder";
  try {
    AlgorithmTable table(hopper);
    save_algorithms(folder_ / "file" / "algorithms.json", table);
    FAIL() << "written";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find((folder_ / "file" / "algorithms.json").string()),
              std::string::npos);
  }
}

TEST(AlgorithmFileName, FollowsTheUsersFolders) {
  setenv("HOME", "/home/someone", 1);
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(default_algorithms_file(), "/home/someone/.cache/ztrain/algorithms.json");
  setenv("XDG_CACHE_HOME", "/scratch/cache", 1);
  EXPECT_EQ(default_algorithms_file(), "/scratch/cache/ztrain/algorithms.json");
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  EXPECT_EQ(default_algorithms_file(), "");
}

}  // namespace
}  // namespace ztrain::kernels::algorithm_table_test
